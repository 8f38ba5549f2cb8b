"""Evaluating a checkpoint: the numbers are those of its completions, under the conditions of its run."""

import json
import shutil
from pathlib import Path

import pytest

from scalerl.core.clock import ManualClock
from scalerl.core.errors import DataError, RecipeError, UsageError
from scalerl.models.config import Config
from scalerl.runs import RunDirectory
from scalerl.runs.evaluate import evaluate, folder_of, recipe_for
from scalerl.tasks.chain import Chain
from scalerl.testing.synthetic_run import write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    Config(dtype="float32", hidden_size=16, num_layers=1, num_heads=1, num_kv_heads=1, intermediate_size=16).build(
        alphabet=Chain().alphabet(), seed=3
    ).save(folder)
    return folder


@pytest.fixture
def run_folder(folder, tmp_path):
    """A run with two checkpoints."""
    run = write_run(tmp_path / "run", num_steps=2)
    for step in (1, 2):
        shutil.copytree(folder, run.path / "checkpoints" / f"step-{step:06d}")
    return run.path


def evaluated(folder, recipe, **options):
    return evaluate(folder, recipe, **{"samples": 4, "ks": (1, 2, 4), "limit": 40, "clock": ManualClock(), **options})


def test_the_numbers_agree_with_each_other(folder):
    found = evaluated(folder, recipe_for(folder, task="chain", overrides=["length.completion_tokens=8"]))
    assert found.mean.num_prompts == 40
    assert found.pass_at[1].value == pytest.approx(found.mean.value) == pytest.approx(found.majority_at[1].value)
    assert found.mean.value <= found.pass_at[2].value <= found.pass_at[4].value
    assert 0.0 < found.cut_off_share < 1.0
    assert 0.0 < found.tokens_mean <= 8.0
    assert (found.num_ungraded, found.interrupted_share) == (0, 0.0)
    assert sum(cost.flops for cost in found.costs) > 0.0
    assert json.dumps(found.to_dict())


def test_it_repeats_and_a_limit_takes_the_first_prompts(folder):
    recipe = recipe_for(folder, task="chain", overrides=["length.completion_tokens=8"])
    assert evaluated(folder, recipe).to_dict() == evaluated(folder, recipe).to_dict()
    assert evaluated(folder, recipe, limit=7).mean.num_prompts == 7


def test_a_runs_checkpoint_is_known_from_within_its_folder(run_folder, monkeypatch):
    monkeypatch.chdir(run_folder / "checkpoints")
    assert recipe_for(Path("step-000002")) == recipe_for(run_folder / "checkpoints" / "step-000002")


def test_a_runs_checkpoint_is_sampled_as_its_recipe_says(run_folder):
    newest = folder_of(run_folder)
    assert newest.name == "step-000002"
    recipe = recipe_for(newest)
    assert recipe == RunDirectory.open(run_folder).recipe
    found = evaluated(newest, recipe_for(newest, overrides=["engine.temperature=0.5", "length.control.after_tokens=[3, 3]"]))
    assert (found.temperature, found.interrupted_share > 0.1) == (0.5, True)


def test_what_cannot_be_meant_is_one_sentence(folder, run_folder, tmp_path):
    with pytest.raises(UsageError, match="it is not said what to evaluate on; name a task"):
        recipe_for(folder)
    with pytest.raises(RecipeError, match="there is no task 'chan'; did you mean 'chain'"):
        recipe_for(folder, task="chan")
    with pytest.raises(UsageError, match=r"--k: 4 samples do not give k = 8; raise --samples"):
        evaluated(folder, recipe_for(folder, task="chain"), ks=(8,))
    with pytest.raises(DataError, match="there is no such checkpoint folder"):
        evaluated(tmp_path / "none", recipe_for(folder, task="chain"))
    with pytest.raises(DataError, match="every prompt is longer than 2 tokens"):
        evaluated(folder, recipe_for(folder, task="chain", overrides=["length.prompt_tokens=2"]))
    shutil.rmtree(run_folder / "checkpoints")
    with pytest.raises(UsageError, match="the run has no checkpoint yet; wait for its first one"):
        folder_of(run_folder)


def test_a_grader_that_fails_leaves_no_zero(folder, monkeypatch):
    from scalerl.graders.exact import Exact

    def broken(self, prompt, completion):
        raise OSError("no route to host")

    monkeypatch.setattr(Exact, "grade", broken)
    with pytest.raises(DataError, match="no completion could be graded"):
        evaluated(folder, recipe_for(folder, task="chain", overrides=["length.completion_tokens=8"]), limit=3)
