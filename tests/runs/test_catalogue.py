"""Every recipe of the catalogue trains, and keeps its promises about age."""

import pytest

from scalerl.accounting.metrics import MetricsFold
from scalerl.recipes import recipe_names, resolve
from scalerl.runs import RunDirectory
from scalerl.runs.training import train
from tests.runs.small import SCALE


@pytest.mark.parametrize("name", recipe_names())
def test_it_trains(tmp_path, name):
    recipe = resolve(name, scale=SCALE, overrides=["budget.steps=10", "batch.prompts=2", "evaluation.every_steps=10"])
    outcome = train(recipe, tmp_path / "run")
    assert outcome.step == 10
    metrics = MetricsFold()
    rows = [row for entry in RunDirectory.open(outcome.folder).events() if (row := metrics.update(entry))]
    assert max(metrics.totals.age_counts) <= recipe.pipeline.k
    assert any(row.trainer.get("grad_norm") for row in rows)
    if recipe.pipeline.schedule.round_batches(recipe.pipeline.k) is not None:
        # The weights are frozen for a round: no completion spans versions, and later batches are older.
        assert metrics.totals.num_trained_spanning == 0
        assert max(metrics.totals.age_counts) >= 1
