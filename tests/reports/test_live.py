"""The live display: a pure fold of entries, drawn on a terminal or told in lines."""

import io

import pytest
from rich.console import Console

from scalerl.core.clock import ManualClock
from scalerl.recipes.recipe import Budget
from scalerl.records.events import Resumed, RunEntry
from scalerl.reports.live import LiveDisplay, Progress, duration, panel, sparkline
from scalerl.testing.synthetic_run import R0, START_S, pass_rate, write_run


def console(*, terminal, width=60, encoding="utf-8"):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    return Console(file=stream, force_terminal=terminal, width=width, color_system=None, highlight=False)


def text_of(shown):
    shown.file.flush()
    return shown.file.buffer.getvalue().decode(shown.encoding)


def feed(display, run, clock):
    for entry in run.events():
        clock.advance(entry.time_s - clock.now_s())
        display.update(entry)


def progress_of(run, *, until_step=None, **budget):
    progress = Progress(Budget(**(budget or {"steps": 100})))
    for entry in run.events():
        progress.update(entry)
        if until_step and progress.step >= until_step:
            break
    return progress


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("live") / "run", num_steps=40)


def test_its_numbers_follow_from_the_entries(run):
    progress = progress_of(run, until_step=25)
    # 20 s of warm start, 1 s for each evaluation (0, 1, 2, 3, 4, 8, 12, 16, 20, 24), 25 steps of 2 s
    assert progress.elapsed_s == pytest.approx(20.0 + 10.0 + 50.0)
    assert progress.left_s == pytest.approx(60.0 * 75 / 25)
    assert progress.pass_rates[-1] == pytest.approx(pass_rate(24), abs=5e-4)
    # From the end of step 5 on: 20 steps of 128 tokens, and 5 evaluations (8 ... 24)
    assert progress.tokens_per_s == pytest.approx(20 * 128 / 45.0)
    # Of 45 s on two devices the trainer waits .48 s a step and 1 s an evaluation, the generator .2 s a step
    assert progress.idle_share == pytest.approx((20 * 0.68 + 5 * 1.0) / 90.0)


@pytest.mark.parametrize(
    ("budget", "left_s"),
    [
        ({"flops": 5e11}, 60.0),  # half of it after 25 steps that took 60 s
        ({"hours": 0.05}, 100.0),  # 180 s, of which 80 have passed
        ({"usd": 0.24}, 60.0 * (0.24 - 0.1) / 0.1),  # 50 s of training, evaluations left out, on two devices at .001 dollars
        ({"steps": 26, "hours": 10.0}, 60.0 / 25),
    ],
)
def test_the_time_left_is_that_of_the_nearest_bound(run, budget, left_s):
    assert progress_of(run, until_step=25, **budget).left_s == pytest.approx(left_s)


def test_nothing_is_promised_before_the_first_step(run):
    progress = Progress(Budget(steps=10))
    for entry in run.events():
        progress.update(entry)
        break
    assert (progress.left_s, progress.tokens_per_s, progress.idle_share) == (None, None, None)


@pytest.mark.parametrize(("width", "encoding"), [(60, "utf-8"), (60, "ascii"), (120, "utf-8")])
def test_the_panel_fits_and_says_what_matters(run, width, encoding):
    shown = console(terminal=True, width=width, encoding=encoding)
    shown.print(panel(progress_of(run, until_step=25), width=width, is_ascii=encoding == "ascii"))
    text = text_of(shown)
    assert all(len(line) <= width for line in text.splitlines())
    for part in (
        "step 25 of 100",
        "reward",
        "held out",
        "age",
        "mean 0.3, p95 1",
        "cut off",
        "6.2%",
        "tokens/s",
        "elapsed",
        "1:20",
        "left",
        "about 3:00",
    ):
        assert part in text
    assert "Step 10: truncation is 0.125, above its limit of 0.1." in " ".join(text.replace("│", " ").replace("|", " ").split())


def test_on_a_terminal_it_draws_and_leaves_the_last_state(run):
    shown = console(terminal=True)
    clock = ManualClock(START_S)
    with LiveDisplay(shown, budget=Budget(steps=40), clock=clock) as display:
        feed(display, run, clock)
    assert "step 40 of 40, ended: steps" in text_of(shown)


def test_elsewhere_it_writes_a_line_now_and_then_without_codes(run):
    shown = console(terminal=False)
    clock = ManualClock(START_S)
    with LiveDisplay(shown, budget=Budget(steps=40), clock=clock) as display:
        display.warn("The tracker x failed.")
        feed(display, run, clock)
    lines = text_of(shown).splitlines()
    assert lines[0] == "warning: The tracker x failed."
    assert [line for line in lines if line.startswith("warning: Step 10")]
    assert lines[-1].startswith("step 40 of 40, ended: steps, reward ")
    steps = [line for line in lines if line.startswith("step ")]
    assert 8 <= len(steps) <= 14, "120 s at a line every 10 s"
    assert steps[0] == "step 0 of 40, the base is being made, elapsed 0 s"
    assert steps[1] == "step 0 of 40, elapsed 20 s"
    assert f"held out {R0:.3f}" not in lines[-1]
    assert "\x1b" not in text_of(shown)


def test_a_replay_floods_nobody(run):
    shown = console(terminal=False)
    with LiveDisplay(shown, budget=Budget(steps=40), clock=ManualClock(START_S)) as display:
        for entry in run.events():
            display.update(entry)
    assert len([line for line in text_of(shown).splitlines() if line.startswith("step ")]) == 4, (
        "the start, the base, the first step, and the end"
    )


def test_many_resumes_are_one_line_with_their_number(run):
    shown = console(terminal=False)
    first, *_, last = run.events()
    with LiveDisplay(shown, budget=Budget(steps=40), clock=ManualClock(START_S)) as display:
        for entry in [first, *(RunEntry(seq, START_S, Resumed(from_seq=-1)) for seq in range(1, 38)), last]:
            display.update(entry)
    told = [line for line in text_of(shown).splitlines() if line.startswith("warning: The run was resumed")]
    assert told == ["warning: The run was resumed 37 times: steps after its checkpoint are repeated."]
    assert display.progress.warnings == [told[0].removeprefix("warning: ")]


def test_a_resume_and_the_end_are_told(tmp_path):
    run = write_run(tmp_path / "run", num_steps=6, resume_at=4, ends="interrupted\x1b[31m")
    shown = console(terminal=False)
    with LiveDisplay(shown, budget=Budget(steps=6)) as display:
        for entry in run.events():
            display.update(entry)
    assert "warning: The run was resumed" in text_of(shown)
    assert "ended: interrupted?[31m" in text_of(shown)


def test_small_words():
    assert sparkline([0.0, 0.5, 1.0], is_ascii=False) == "▁▅█"
    assert sparkline([0.0, 1.0], is_ascii=True) == "_@"
    assert sparkline([0.3, 0.3], is_ascii=False) == "▁▁"
    assert sparkline([0.3], is_ascii=False) == ""
    assert sparkline([1.0] * 30, is_ascii=False, most=0) == ""
    assert [duration(s) for s in (0.4, 59.4, 65.0, 3723.0)] == ["0 s", "59 s", "1:05", "1:02:03"]
