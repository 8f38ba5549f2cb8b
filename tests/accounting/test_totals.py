"""Totals are hand counts of the synthetic run, and go back with a resume."""

import pytest

from scalerl.accounting.metrics import MetricsFold
from scalerl.testing.synthetic_run import write_run


def folded(run):
    fold = MetricsFold()
    rows = [row for entry in run.events() if (row := fold.update(entry))]
    return fold, rows


@pytest.mark.parametrize("resume_at", [None, 12])
def test_totals_are_those_of_the_lineage_whether_or_not_a_step_was_repeated(tmp_path, resume_at):
    fold, rows = folded(write_run(tmp_path / "run", num_steps=20, resume_at=resume_at))
    totals = fold.totals
    assert len(rows) == 20 + (resume_at is not None)
    assert (totals.num_steps, totals.num_updates) == (20, 20)
    assert (totals.num_trained_groups, totals.filtered, totals.num_filtered) == (60, {"zero_variance": 20}, 20)
    assert (totals.num_completions, totals.num_trained_completions) == (320, 240)  # 4 groups of 4, 3 of them trained
    assert totals.num_tokens == 320 * 8
    assert (totals.num_cut_off, totals.num_interrupted, totals.num_grading_failed) == (20, 20, 0)  # one of each a step
    assert totals.num_trained_spanning == 19 * 4  # slot 3 of every step but the first
    assert totals.prompts_left_out == 2
    assert totals.age_counts == {0: 41, 1: 19}
    assert (totals.age_largest, totals.age_mean) == (1, pytest.approx(19 / 60))
    assert totals.to_dict()["age_p95"] == 1


def test_a_row_is_flat_and_names_its_filters(tmp_path):
    _, rows = folded(write_run(tmp_path / "run", num_steps=2))
    flat = rows[-1].flat()
    assert (flat["filtered/zero_variance"], flat["num_completions"], flat["num_tokens"]) == (1, 16, 128)
    assert flat["trainer/grad_norm"] == 0.5
    assert not [name for name, value in flat.items() if isinstance(value, dict)]
