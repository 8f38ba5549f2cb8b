"""Whole runs: they repeat, they resume, they survive every kill, and their books balance."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from scalerl.accounting.ledger import LedgerFold
from scalerl.accounting.metrics import MetricsFold
from scalerl.core.errors import DataError, OccupiedError, ScalerlError, StoppedError, UsageError
from scalerl.graders.exact import Exact
from scalerl.pipeline.simulation import lineage
from scalerl.records.cost import Activity
from scalerl.records.events import CheckpointStarted, Evaluated, GroupFinished, Resumed, RunEntry, Spent, StepFinished
from scalerl.runs import RunDirectory
from scalerl.runs.checkpoints import CheckpointStore
from scalerl.runs.training import resume, train
from scalerl.runtimes.inline import Inline
from scalerl.tasks import Split
from scalerl.tasks.chain import Chain
from tests.runs.small import small_recipe


@pytest.fixture
def undisturbed(tmp_path):
    return train(small_recipe(), tmp_path / "undisturbed").folder


def entries(folder: Path) -> list[RunEntry]:
    return list(RunDirectory.open(folder).events())


def steps(folder: Path) -> list[StepFinished]:
    return [entry.event for entry in lineage(entries(folder)) if isinstance(entry.event, StepFinished)]


def told(folder: Path) -> list[tuple[object, ...]]:
    """Everything that a step says but for what it cost."""
    return [(step.step, step.version, step.trained, step.filtered, step.metrics) for step in steps(folder)]


def evaluations(folder: Path) -> list[tuple[int, int]]:
    """(version, passed completions) of the lineage that goes on."""
    told = [entry.event for entry in lineage(entries(folder))]
    return [(event.version, event.num_passed) for event in told if isinstance(event, Evaluated)]


def weights(folder: Path) -> bytes:
    latest = CheckpointStore(folder, RunDirectory.open(folder).recipe.checkpoints).latest(next_seq=10**9)
    assert latest is not None
    return (latest.path / "model.safetensors").read_bytes() + (latest.path / "optimizer.safetensors").read_bytes()


def test_a_synchronous_run_repeats_bit_for_bit(undisturbed, tmp_path):
    again = train(small_recipe(), tmp_path / "again").folder
    assert told(again) == told(undisturbed)
    assert weights(again) == weights(undisturbed)
    assert len(told(again)) == 6
    assert any(step.trained for step in steps(again))


def test_inline_and_processes_give_the_same_losses(undisturbed, tmp_path):
    apart = train(small_recipe("runtime.type=processes"), tmp_path / "apart").folder
    assert told(apart) == told(undisturbed)
    assert weights(apart) == weights(undisturbed)


class _Crash(Exception):
    pass


@pytest.mark.parametrize("last_step", [1, 3, 4])
def test_a_killed_synchronous_run_that_is_resumed_equals_the_undisturbed_one(undisturbed, tmp_path, last_step):
    def crash(entry: RunEntry) -> None:
        if isinstance(entry.event, StepFinished) and entry.event.step == last_step:
            raise _Crash

    folder = tmp_path / "crashed"
    with pytest.raises(_Crash):
        train(small_recipe(), folder, observers=(crash,))
    outcome = resume(folder)
    assert outcome.step == 6
    assert told(folder) == told(undisturbed)
    assert weights(folder) == weights(undisturbed)
    resumed = [entry.event for entry in entries(folder) if isinstance(entry.event, Resumed)]
    assert len(resumed) == 1


def test_a_run_killed_after_its_last_checkpoint_is_not_evaluated_twice(undisturbed, tmp_path):
    saved: list[int] = []

    def crash(entry: RunEntry) -> None:
        saved.extend([entry.event.step] if isinstance(entry.event, CheckpointStarted) else [])
        if isinstance(entry.event, Spent) and 6 in saved:
            raise _Crash

    folder = tmp_path / "crashed"
    with pytest.raises(_Crash):
        train(small_recipe(), folder, observers=(crash,))
    assert resume(folder).step == 6
    assert evaluations(folder) == evaluations(undisturbed)


def test_the_push_that_begins_a_resumed_run_is_booked(tmp_path):
    def crash(entry: RunEntry) -> None:
        if isinstance(entry.event, StepFinished) and entry.event.step == 3:
            raise _Crash

    folder = tmp_path / "crashed"
    with pytest.raises(_Crash):
        train(small_recipe(), folder, observers=(crash,))
    resume(folder)
    after = [entry.event for entry in entries(folder)]
    after = after[next(place for place, event in enumerate(after) if isinstance(event, Resumed)) + 1 :]
    told = [event for event in after[: after.index(next(event for event in after if isinstance(event, StepFinished)))] if event.costs]
    assert [cost for event in told for cost in event.costs if cost.activity is Activity.PUSH and cost.detail == "taking"]


def test_metrics_of_a_run_that_begins_again_are_told_once(undisturbed, tmp_path):
    """Without a checkpoint everything comes again, the base's evaluation included."""

    def crash(entry: RunEntry) -> None:
        if isinstance(entry.event, StepFinished):
            raise _Crash

    folder = tmp_path / "crashed"
    with pytest.raises(_Crash):
        train(small_recipe(), folder, observers=(crash,))
    resume(folder)
    again, once = ([json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()] for run in (folder, undisturbed))
    assert again == once


def test_ctrl_c_while_the_base_is_made_is_one_sentence_and_the_run_can_be_gone_on_with(tmp_path, monkeypatch):
    def interrupted(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    folder = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(Inline, "launch", interrupted)
        with pytest.raises(StoppedError, match=r"stopped before training began; go on with: scalerl train --resume --out .*run"):
            train(small_recipe(), folder)
    assert resume(folder).step == 6


def test_a_run_may_live_in_a_thread_of_a_larger_program(tmp_path):
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(train, small_recipe("budget.steps=1"), tmp_path / "run").result().step == 1


@pytest.mark.slow
@pytest.mark.parametrize("role", ["trainer", "orchestrator", "all"])
def test_whoever_is_killed_at_a_bad_moment_nothing_is_lost_or_trained_twice(tmp_path, role):
    """Killed with -9 while saving, pushing and appending; at random moments in tests/reliability, where a lost generator is replaced."""
    moments = ["step", "checkpoint", "push"] + (["append", "commit"] if role in ("orchestrator", "all") else [])
    survives_kills(tmp_path / "run", [(moment, role) for moment in moments])


def survives_kills(folder: Path, moments: list[tuple[str, str]]) -> None:
    in_memory = set(Path("/dev/shm").iterdir())
    overrides = ("runtime.type=processes", "pipeline.k=8", "budget.steps=30", "checkpoints.every_steps=3")
    for moment, role in moments:
        # The pipes close when the last process that holds them is gone: children that outlived their parent would hang here.
        command = [sys.executable, "-m", "tests.runs.small", str(folder), moment, role, *overrides]
        killed = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=Path(__file__).parents[2])
        assert killed.returncode != 0, killed.stdout
        if role == "trainer":
            assert "the trainer died" in killed.stderr
    outcome = resume(folder)
    assert outcome.step == 30
    assert set(Path("/dev/shm").iterdir()) <= in_memory

    kept = lineage(entries(folder))
    finished = {entry.event.group: entry.event for entry in kept if isinstance(entry.event, GroupFinished)}
    settled = [group for step in steps(folder) for group in (*step.trained, *(g for groups in step.filtered.values() for g in groups))]
    visits = Counter((finished[group].epoch, finished[group].prompt_id) for group in settled)
    assert set(visits.values()) == {1}
    first_epoch = {prompt for epoch, prompt in visits if epoch == 0}
    assert len(first_epoch) == 100
    assert sum(isinstance(entry.event, Resumed) for entry in entries(folder)) == len(moments)

    ledger, metrics = LedgerFold(), MetricsFold()
    for entry in entries(folder):
        ledger.update(entry)
        metrics.update(entry)
    assert ledger.ledger().wasted_device_s > 0.0
    assert 0 <= max(metrics.totals.age_counts) <= 8
    assert metrics.totals.num_steps == 30


def test_the_books_balance(undisturbed):
    fold = LedgerFold()
    for entry in entries(undisturbed):
        fold.update(entry)
    ledger = fold.ledger()
    assert ledger.unbooked_share is not None
    assert abs(ledger.unbooked_share) <= 0.02
    assert sum(row.device_s for row in ledger.rows) == pytest.approx(ledger.elapsed_device_s)


def test_trainer_and_generator_agree_on_the_probe(undisturbed):
    mismatches = [step.metrics["mismatch_max"] for step in steps(undisturbed) if step.trained]
    assert mismatches
    assert all(mismatch is not None and mismatch < 1e-4 for mismatch in mismatches)


def test_the_saved_checkpoint_is_a_model_folder_by_itself(undisturbed):
    folder = undisturbed / "checkpoints" / "step-000006"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    # Greedy decoding of the plain Hugging Face model ends as our own engine ends: with the end token.
    prompt = tokenizer(RunDirectory.open(undisturbed).recipe.task.examples(Split.HELD_OUT)[0].text, return_tensors="pt")
    answer = model.generate(**prompt, do_sample=False, max_new_tokens=8)[0]
    assert answer[-1] == tokenizer.eos_token_id
    assert "=" in tokenizer.decode(answer)


def test_a_recipe_that_cannot_start_leaves_no_folder(tmp_path):
    with pytest.raises(DataError, match="there is no such checkpoint folder"):
        train(small_recipe("model.type=checkpoint", "model.path=/nowhere/model", "warm_start=none"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("part", ["trainer.type=fsdp2", "runtime.type=ray"])
def test_what_does_not_run_yet_is_refused_before_anything_is_made(tmp_path, part):
    with pytest.raises(UsageError, match="does not run yet; choose"):
        train(small_recipe(part), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_gold_answers_that_the_grader_rejects_are_refused_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(Chain, "grader", lambda task: Exact(after="?"))
    with pytest.raises(DataError, match="rejects the gold answer"):
        train(small_recipe(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_in_use_is_left_alone(undisturbed):
    before = (undisturbed / "events.jsonl").read_bytes()
    with pytest.raises(OccupiedError, match="in use"):
        train(small_recipe(), undisturbed)
    assert (undisturbed / "events.jsonl").read_bytes() == before


def test_a_run_that_has_ended_is_not_gone_on_with(undisturbed):
    with pytest.raises(UsageError, match="the run has ended: the budget of steps is spent"):
        resume(undisturbed)


def test_a_budget_of_flops_ends_the_run(tmp_path):
    outcome = train(small_recipe("budget.steps=1000", "budget.flops=2e6"), tmp_path / "run")
    assert outcome.reason == "the budget of FLOPs is spent"
    assert outcome.step < 20


def test_a_base_that_never_passes_is_refused(tmp_path):
    with pytest.raises(ScalerlError, match=r"base: .*train") as refused:
        train(small_recipe("warm_start.steps=1", "task.num_held_out=64", "task.num_prompts=80"), tmp_path / "run")
    assert refused.value.remedy
