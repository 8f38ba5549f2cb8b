"""Keep or re-prefill: what is said of planted drift and planted costs, on a terminal, on a page and in a program."""

import io
import json
import math

import pytest
from rich.console import Console

from scalerl.accounting.pushes import PushFold, PushSums
from scalerl.records.cost import Activity, Cost
from scalerl.records.events import GroupFinished, RunEntry, Spent, StepFinished
from scalerl.records.push import DRIFT_PROBE, MeasuredDrift, Push, TokenDrift
from scalerl.reports import KeepOrReprefill, RunReport, print_run
from scalerl.reports.kv import LARGE_KL, SMALL_KL
from scalerl.testing.synthetic_run import DRIFT, write_run


def answer(*, kl, reprefill_s=0.1, kv="keep", num_pushes=4, spread=0.0):
    """Of pushes with a planted KL divergence; half of them have `spread` more, half have that less."""
    num_tokens = (20,) * 2
    events = [
        GroupFinished(
            group=0,
            prompt_id="p",
            epoch=0,
            task="chain",
            num_tokens=num_tokens,
            values=(1.0, 0.0),
            passed=(True, False),
            finished=(True, True),
            first_versions=(0, 0),
            last_versions=(1, 1),
        ),
        Spent(costs=(Cost("generator:0", Activity.GENERATE, seconds=4.0, tokens=40),)),
    ]
    for push in range(num_pushes):
        k3 = 100 * (kl + (spread if push % 2 else -spread)) if kl is not None else 0.0
        drift = None if kl is None else MeasuredDrift((TokenDrift(1, 3, 100, 0.0, 2 * k3, k3, 100.0, 100.0 + 2 * k3),), (), 30, 400)
        activity, detail = (Activity.REPREFILL, "") if kv == "reprefill" else (Activity.PUSH, DRIFT_PROBE)
        cost = Cost("generator:0", activity, seconds=reprefill_s, tokens=30, detail=detail)
        met = Push(num_rows=1, prompt_tokens=10, generated_tokens=5, reprefill_tokens=15, reprefill_pairs=120, waited_s=0.5, drift=drift)
        events.append(StepFinished(step=push + 1, version=push + 1, push=met, costs=(cost,)))
    fold = PushFold()
    for seq, event in enumerate(events):
        fold.update(RunEntry(seq, float(seq), event))
    return KeepOrReprefill(kv, fold.sums)


def test_the_verdict_weighs_the_drift_against_its_price():
    assert answer(kl=1e-4).verdict().startswith("Keep: the drift is below 0.0001 nats a token, too small to matter")
    assert "re-prefill would take at most " in answer(kl=1e-4).verdict()
    assert answer(kl=2 * LARGE_KL, reprefill_s=0.05, kv="reprefill").verdict() == (
        "Re-prefill: the drift is 0.1 to 0.1 nats a token, and re-prefill takes 4.8% of generation."
    )
    assert answer(kl=2 * SMALL_KL, reprefill_s=0.01, kv="reprefill").verdict().startswith("Re-prefill: ")
    assert answer(kl=2 * SMALL_KL, kv="reprefill").verdict().startswith("A trade: the drift is noticeable, 0.01 to 0.01 nats")
    assert answer(kl=2 * LARGE_KL, reprefill_s=1.0, kv="reprefill").verdict().startswith("A trade: the drift is large")
    assert answer(kl=SMALL_KL, spread=0.5 * SMALL_KL).verdict().startswith("Undecided: ")


def test_two_pushes_tell_their_error_badly():
    """With a drift that is small by either of them, two cannot rule out that it matters; eight can."""
    assert answer(kl=0.5 * SMALL_KL, spread=0.1 * SMALL_KL, num_pushes=2).verdict().startswith("Undecided: ")
    assert answer(kl=0.5 * SMALL_KL, spread=0.1 * SMALL_KL, num_pushes=8).verdict().startswith("Keep: ")


def test_what_was_not_measured_is_no_number():
    none = KeepOrReprefill("keep", PushSums())
    assert none.sentences() == ["Not measured: weights have not changed yet."]
    drained = KeepOrReprefill("keep", PushSums(num_pushes=3))
    assert drained.sentences() == ["Not measured: no completion was in flight when weights changed, and every policy is the same."]
    young = KeepOrReprefill("keep", PushSums(num_pushes=1, num_met=1, num_rows=2, prompt_tokens=9, generate_tokens=5, lengths={1: 3}))
    assert young.sentences() == ["Not measured: of the completions that were in flight when weights changed none has ended yet."]
    assert [table.rows for table in young.tables()] == [()] * 4
    assert [table.rows for table in none.tables()] == [()] * 4
    assert (none.share, none.kl_interval, none.to_dict()["drift"]) == (None, None, None)
    unsampled = answer(kl=None)
    assert unsampled.verdict() == "No verdict: the drift was not sampled (see engine.drift, which the embedded engine has)."
    assert unsampled.share is None
    assert "what that takes was not measured" in unsampled.sentences()[0]
    assert answer(kl=None, kv="drain").verdict() == "No verdict: with drain no cache outlives its version."
    assert answer(kl=0.1, num_pushes=1).verdict() == "No verdict: one push alone has measured the drift."
    assert {row[3] for row in unsampled.at_lengths().rows} == {"not known"}


def test_the_share_of_a_reprefill_is_what_it_took_and_forecasts_start_there():
    took = answer(kl=1e-4, kv="reprefill")
    assert took.share == pytest.approx(0.4 / 4.4)
    assert took.measured.at().reprefill_share == pytest.approx(took.share)
    assert "15 tokens a push, took 0.4 s, 9.1% of it and generation together" in took.sentences()[1]
    assert "decoding stood still for 500 ms in the mean and 500 ms at most" in took.sentences()[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "mine", num_steps=20)


def test_a_run_answers_in_python(run):
    found = KeepOrReprefill.of(run)
    kl = (math.expm1(DRIFT) - DRIFT) / 5
    assert found.sums.drift.kl == pytest.approx(kl)
    (row,) = found.by_distance().rows
    assert row[:4] == ("1", "400", f"{DRIFT / math.sqrt(5):.3g}", f"{kl:.3g}")
    assert [row[0] for row in found.by_position().rows] == ["3-6", "7-14"]
    text = str(found)
    assert text.splitlines()[0].startswith("Over 400 tokens, 1 version after the first token of their completion, a kept cache makes")
    assert "Keep: the drift is below 1e-05 nats a token" in text
    assert json.loads(json.dumps(found.to_dict()))["drift"]["num_tokens"] == 400
    assert found.to_dict()["at_lengths"]["16"]["mean_tokens"] == 16 * 8


def test_the_terminal_and_the_page_tell_it(run):
    report = RunReport.of(run, [])
    console = Console(file=io.StringIO(), width=140)
    print_run(report, console)
    text = console.file.getvalue()
    assert "Keep or re-prefill?" in text
    assert "Keep: the drift is below 1e-05 nats a token" in text
    assert report.to_dict()["keep_or_reprefill"]["verdict"].startswith("Keep: ")
    assert [plot["x"] for plot in report.summary.kv.plots()] == [["1"], ["3-6", "7-14"]]
