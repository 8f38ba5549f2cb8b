"""Neighbours: one ingredient put back, derived; the paper's leave-one-out study comes out of it."""

import csv
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scalerl.core.errors import RecipeError, UnknownNameError
from scalerl.recipes import changes, recipe_names, resolve, scale_names
from scalerl.recipes.neighbours import COMPANIONS, INGREDIENTS, neighbours
from scalerl.recipes.tree import LABELS

EXAMPLES = Path(__file__).parents[2] / "examples"
DATA = EXAMPLES / "data"

PAPER = {
    "LOO-prompt-lvl-adv-norm": ("loo_prompt_lvl_adv_norm", "advantage", "group"),
    "LOO-length-penalty": ("loo_length_penalty", "control", "penalty"),
    "LOO-batch (no 0-var filter)": ("loo_batch_no_zero_var_filter", "filters", "none"),
    "LOO-PPO-off-policy-8": ("loo_ppo_offpolicy_8", "schedule", "ppo_off_policy"),
    "LOO-no-fp32-precision-fix": (None, "head", "body"),
    "LOO-sample-avg": ("loo_sample_avg", "aggregation", "sample"),
    "LOO-uniform-sampling (no NPR)": (None, "selector", "uniform"),
    "LOO-dapo": ("loo_dapo", "loss", "dapo"),
}
"""Figure 7 of arXiv 2510.13786 by its names: the series of figure 15 where there is one, and what was put back."""

ALTERNATIVES = ["pipeline.schedule=ppo_off_policy", "length.control=penalty"]
"""What the paper puts back that its weak baseline shares with ScaleRL."""


KEPT = [
    "objective.loss=cispo",
    "objective.aggregation=prompt",
    "curriculum.selector=no_positive_resampling",
    "model.head=fp32",
]
"""All but advantage and filters of the baseline made ScaleRL's."""


def column(name, key):
    with (DATA / name).open() as rows:
        return {row[key] for row in csv.DictReader(rows)}


def test_the_papers_leave_one_out_study_is_reproduced():
    runs = {run for run in column("scalerl_paper_fits.csv", "run") if run.startswith("LOO-")}
    series = {name for name in column("scalerl_paper_points.csv", "series") if name.startswith("loo_")}
    assert runs == PAPER.keys()
    assert series == {points for points, _, _ in PAPER.values() if points}
    found = neighbours("scalerl", scale="paper-8b", baseline_overrides=ALTERNATIVES)
    assert {neighbour.name for neighbour in found} == {f"scalerl~{ingredient}={value}" for _, ingredient, value in PAPER.values()}


def test_each_of_them_is_scalerl_but_for_one_ingredient_with_the_papers_numbers():
    found = {n.ingredient: n.recipe for n in neighbours("scalerl", scale="paper-8b", baseline_overrides=ALTERNATIVES)}
    assert found["loss"].objective.loss.selection() == {"type": "dapo", "clip_low": 0.2, "clip_high": 0.26}
    assert found["control"].length.control.selection() == {"type": "penalty", "limit_tokens": 14336, "margin_tokens": 2048}
    assert (found["schedule"].pipeline.schedule.name(), found["schedule"].pipeline.k) == ("ppo_off_policy", 8)
    assert found["filters"].curriculum.filters == ()
    original = resolve("scalerl", scale="paper-8b").tree()
    for recipe in found.values():
        assert len([change for change in changes(original, recipe.tree()) if change.path not in LABELS]) == 1


RECIPES = st.sampled_from(recipe_names())


@settings(deadline=None, max_examples=40)
@given(RECIPES, RECIPES, st.sampled_from(scale_names()))
@example("scalerl", "ppo-critic", "laptop")
@example("ppo-critic", "scalerl", "laptop")
def test_every_neighbour_is_the_original_with_one_ingredient_of_the_other(recipe, baseline, scale):
    original, other = resolve(recipe, scale=scale).tree(), resolve(baseline, scale=scale).tree()
    found = neighbours(recipe, baseline=baseline, scale=scale)
    assert len({neighbour.ingredient for neighbour in found}) == len(found)
    for neighbour in found:
        again = resolve(recipe, scale=scale, overrides=neighbour.overrides)
        assert (again, again.hash, again.name) == (neighbour.recipe, neighbour.recipe.hash, neighbour.name)
        differing = [change.path for change in changes(original, again.tree()) if change.path not in LABELS]
        assert differing
        if not all(path.startswith(INGREDIENTS[neighbour.ingredient]) for path in differing):
            companion = COMPANIONS[neighbour.ingredient]
            assert all(path.startswith(INGREDIENTS[neighbour.ingredient] + INGREDIENTS[companion]) for path in differing)
            alone = [setting for setting in neighbour.overrides if not setting.startswith(INGREDIENTS[companion])]
            with pytest.raises(RecipeError):
                resolve(recipe, scale=scale, overrides=alone)
    # Together they make the other recipe: nothing in which two recipes differ is left out of the ingredients.
    everything = [setting for neighbour in found for setting in neighbour.overrides if not setting.startswith("name=")]
    resolved = resolve(recipe, scale=scale, overrides=everything).tree()
    assert [change for change in changes(resolved, other) if change.path not in LABELS] == []


def test_a_recipe_has_no_neighbours_towards_itself():
    assert neighbours("scalerl", baseline="scalerl") == ()


def test_settings_of_one_component_are_an_ingredient_too():
    (neighbour,) = neighbours("scalerl", baseline="scalerl", baseline_overrides=["objective.loss.cap=8.0"], scale="paper-8b")
    assert (neighbour.name, [str(change) for change in neighbour.changes]) == (
        "scalerl~loss=cispo",
        ["objective.loss: cispo(cap=5.0) -> cispo(cap=8.0)"],
    )
    assert neighbour.recipe.objective.loss.cap == 8.0


def test_a_setting_that_the_other_side_leaves_open_is_taken_back():
    own = ["objective.loss=ppo", "objective.loss.dual_clip=3.0"]
    (neighbour,) = neighbours("scalerl", overrides=own, baseline="scalerl", baseline_overrides=["objective.loss=ppo"])
    assert neighbour.overrides[1:] == ('objective.loss={type = "ppo", clip = 0.2}', "objective.loss.dual_clip=none")
    assert neighbour.recipe.objective.loss.dual_clip is None


def test_what_compares_and_what_scales_are_put_back_together():
    own = ["objective.advantage={type='leave_one_out', scale='none'}"]
    (neighbour,) = neighbours("scalerl", overrides=own, baseline="scalerl")
    assert neighbour.name == "scalerl~advantage=centred,batch"
    assert (neighbour.recipe.objective.advantage.name(), neighbour.recipe.objective.advantage.scale) == ("centred", "batch")


def test_a_recipe_without_groups_gets_all_that_a_group_baseline_needs():
    own = ["objective.advantage=critic", "curriculum.filters=[]"]
    (neighbour,) = neighbours("scalerl", overrides=own, baseline="baseline", baseline_overrides=KEPT)
    assert (neighbour.recipe.objective.advantage.name(), neighbour.recipe.objective.advantage.scale) == ("centred", "group")


def test_a_critic_takes_the_filter_along_that_it_cannot_stand_beside():
    """It learns from groups of equal rewards too. Groups without the filter are a recipe, and so a neighbour of their own."""
    found = {neighbour.ingredient: neighbour for neighbour in neighbours("scalerl", baseline="ppo-critic")}
    assert found["advantage"].name == found["advantage"].recipe.name == "scalerl~advantage=critic,filters=none"
    assert [change.path for change in found["advantage"].changes] == ["objective.advantage", "curriculum.filters"]
    assert found["advantage"].recipe.curriculum.filters == ()
    assert found["filters"].name == "scalerl~filters=none"
    back = {neighbour.ingredient: neighbour for neighbour in neighbours("ppo-critic", baseline="scalerl")}
    assert back["advantage"].name == "ppo-critic~advantage=centred"
    assert back["filters"].name == "ppo-critic~filters=zero_variance,advantage=centred"
    assert back["filters"].recipe.objective.advantage.name() == "centred"


def test_what_no_companion_mends_is_told():
    with pytest.raises(RecipeError, match=r"batch\.group = 1 leaves objective\.advantage = centred no group to compare with"):
        neighbours("ppo-critic", baseline="deepseek-grpo", overrides=["batch.group=1"])


def shell(command: str) -> str:
    """What a reader gets who types `command`."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return subprocess.run(command, shell=True, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "PATH": path}).stdout


def test_a_printed_neighbour_is_a_command_of_the_shell():
    """Quotes and all, up to the recipe that it trains."""
    printed = shell(f"scalerl recipe neighbours scalerl --towards ppo-critic --scale {EXAMPLES / 'tiny.toml'}").splitlines()
    (command,) = [line for line in printed if line.startswith("scalerl train") and "critic" in line]
    shown = tomllib.loads(shell(command.replace("scalerl train", "scalerl recipe show", 1)))
    assert shown["name"] == "scalerl~advantage=critic,filters=none"
    assert shown["objective"]["advantage"]["type"] == "critic"
    assert shown["curriculum"]["filters"] == []
    assert shown["batch"]["prompts"] == 4


def test_a_schedule_is_put_back_with_its_k():
    (neighbour,) = neighbours(
        "scalerl", baseline="scalerl", overrides=["pipeline.schedule=ppo_off_policy"], baseline_overrides=["pipeline.k=0"]
    )
    assert (neighbour.recipe.pipeline.schedule.name(), neighbour.recipe.pipeline.k) == ("pipeline_rl", 0)


def test_a_complete_file_keeps_its_own_scale(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(resolve("scalerl", scale="paper-8b").to_toml())
    found = neighbours(path, scale="paper-8b")
    assert {n.ingredient for n in found} == {n.ingredient for n in neighbours("scalerl")}
    assert all(n.recipe.batch.num_completions == 768 for n in found)
    with pytest.raises(RecipeError, match="no scale lies under it"):
        neighbours(path, baseline=path, scale="laptop")


def test_mistakes_are_told_by_name():
    with pytest.raises(UnknownNameError, match="did you mean 'scalerl'"):
        neighbours("scalrl")
    with pytest.raises(UnknownNameError, match="did you mean 'baseline'"):
        neighbours("scalerl", baseline="basline")
