"""What pushes met, by hand: sums, ratios with their errors, rates, and the way back of a resume."""

import math

import pytest
from msgspec.structs import replace

from scalerl.accounting.ledger import LedgerFold
from scalerl.accounting.metrics import MetricsFold
from scalerl.accounting.pushes import DriftSums, PushFold
from scalerl.records.cost import Activity, Cost
from scalerl.records.events import CheckpointStarted, GroupFinished, Resumed, RunEntry, Spent, StepFinished
from scalerl.records.push import DRIFT_PROBE, MeasuredDrift, Push, TokenDrift, TraceDrift

DRIFT = MeasuredDrift(
    tokens=(TokenDrift(1, 2, 4, -0.4, 0.08, 0.02, 3.8, 3.7), TokenDrift(2, 2, 1, 0.1, 0.01, 0.005, 1.1, 1.21)),
    traces=(TraceDrift(1, 2, 1.9, 1.85),),
    recomputed_tokens=100,
    recomputed_pairs=5000,
)
PUSH = Push(num_rows=4, prompt_tokens=40, generated_tokens=20, reprefill_tokens=60, reprefill_pairs=900, waited_s=0.25, drift=DRIFT)


def reprefill(seconds, tokens):
    return Cost("generator:0", Activity.REPREFILL, seconds=seconds, tokens=tokens)


def step(number, *costs, push=PUSH):
    return StepFinished(step=number, version=number, trained=(number,), push=push, costs=costs)


def group(number, *num_tokens):
    count = len(num_tokens)
    return GroupFinished(
        group=number,
        prompt_id="p",
        epoch=0,
        task="chain",
        num_tokens=num_tokens,
        values=(1.0,) * count,
        passed=(True,) * count,
        finished=(True,) * count,
        first_versions=(0,) * count,
        last_versions=(0,) * count,
    )


def folded(*events, fold=None):
    fold = PushFold() if fold is None else fold
    for seq, event in enumerate(events):
        fold.update(RunEntry(seq, float(seq), event))
    return fold


GENERATED = Spent(
    costs=(
        Cost("generator:0", Activity.GENERATE, seconds=3.0, tokens=300),
        Cost("generator:0", Activity.GENERATE, seconds=9.0, detail="messages"),
    )
)


def test_waits_reprefill_and_generation_are_summed_push_by_push():
    sums = folded(
        GENERATED, step(1, reprefill(0.2, 60)), step(2, reprefill(0.4, 120), push=replace(PUSH, waited_s=0.75)), step(3, push=None)
    ).sums
    assert (sums.num_pushes, sums.num_met, sums.num_rows) == (2, 2, 8)
    assert (sums.waited_s, sums.waited_longest_s) == (1.0, 0.75)
    assert (sums.reprefill_s, sums.reprefill_tokens) == (pytest.approx(0.6), 180)
    assert (sums.needed_tokens, sums.needed_pairs) == (120, 1800)
    assert (sums.generate_s, sums.generate_tokens) == (3.0, 300), "what it listened to is no decoding"


def test_drift_is_kept_by_distance_and_by_position():
    sums = folded(step(1), step(2)).sums
    assert {distance: one.num for distance, one in sums.by_distance.items()} == {1: 8, 2: 2}
    assert {bucket: one.num for bucket, one in sums.by_position.items()} == {2: 10}
    drift = sums.drift
    assert (drift.num, drift.kl, drift.sd) == (10, pytest.approx(0.05 / 10), pytest.approx(math.sqrt(0.18 / 10)))
    assert drift.ess == pytest.approx(9.8**2 / (10 * 9.82))
    assert sums.traces[1].ess == pytest.approx(3.8**2 / (4 * 3.7))
    assert folded(step(1, push=replace(PUSH, drift=None))).sums.drift is None, "absence is not zero"


def test_no_drift_is_an_ess_of_one():
    assert DriftSums(num=5, weight=5.0, weight_square=5.0).ess == 1.0


def test_the_error_of_the_kl_counts_pushes():
    sums = folded(step(1), step(2)).sums
    assert sums.kl_by_push.standard_error == pytest.approx(0.0, abs=1e-9), "two pushes that say the same"
    other = replace(DRIFT, tokens=(TokenDrift(1, 0, 5, 0.0, 0.0, 0.075, 5.0, 5.0),))
    sums = folded(step(1), step(2, push=replace(PUSH, drift=other))).sums
    # .025 and .075 over 5 tokens each: the mean is .01 a token; residuals -.025 and .025, so sqrt(2 * .00125) / 10.
    assert sums.kl_by_push.standard_error == pytest.approx(0.005)
    assert folded(step(1)).sums.kl_by_push.standard_error is None


def test_passes_are_reprefills_or_those_of_the_probe():
    probe = Cost("generator:0", Activity.PUSH, seconds=0.5, tokens=100, detail=DRIFT_PROBE)
    assert folded(step(1, reprefill(0.2, 60))).sums.passes.rates().s_per_token == pytest.approx(0.2 / 60)
    sums = folded(step(1, probe)).sums
    assert (sums.probe_s, sums.passes.num_passes) == (0.5, 1)
    assert sums.passes.rates().s_per_token == pytest.approx(0.5 / 100)


def test_what_was_measured_has_its_interval_from_the_rows_that_pushes_met():
    events = (GENERATED, group(1, 10, 20), group(2, 30, 40), step(1, reprefill(0.2, 60)), step(2, reprefill(0.2, 60)))
    measured = folded(*events).sums.measured
    # 100 tokens of 4 completions, which 8 pushes met in all.
    assert measured.load.interval_tokens == 100 / 8
    assert (measured.load.prompt_tokens, measured.load.num_rows) == (10.0, 4.0)
    assert measured.load.prompt_share == 1.0
    assert (measured.needed.tokens, measured.needed.pairs) == (30.0, 450.0)
    assert measured.s_per_token == 0.01
    assert folded(GENERATED, group(1, 10), step(1, push=Push())).sums.measured is None


def test_a_resume_goes_back_to_its_checkpoint():
    events = (step(1), CheckpointStarted(step=1), step(2), Resumed(from_seq=1), step(2))
    fold = folded(*events)
    assert fold.sums == folded(step(1), step(2)).sums
    assert folded(step(1), Resumed(from_seq=-1), step(1)).sums == folded(step(1)).sums
    state = PushFold.restored(folded(*events[:3]).state())
    assert folded(*events[3:], fold=state).sums == fold.sums


def test_a_row_of_metrics_and_the_ledger_tell_of_the_push():
    rows = [MetricsFold().update(RunEntry(0, 0.0, event)) for event in (step(1, reprefill(0.2, 60)), step(1, push=None))]
    pushed, still = rows
    assert (pushed.push_waited_s, pushed.reprefill_tokens, pushed.reprefill_s) == (0.25, 60, 0.2)
    assert (pushed.drift_kl, pushed.drift_ess) == (pytest.approx(0.005), pytest.approx(4.9**2 / (5 * 4.91)))
    assert (still.push_waited_s, still.reprefill_tokens, still.drift_kl) == (None, None, None)
    ledger = folded(step(1, reprefill(0.2, 60)), step(2), fold=LedgerFold()).ledger()
    assert (ledger.num_pushes, ledger.push_waited_s) == (2, 0.5)
    assert [(row.activity, row.tokens) for row in ledger.of(Activity.REPREFILL)] == [("reprefill", 60)]
