"""Recipes: the catalogue, the layers, the round trip, the hash, and what a user may get wrong."""

import hashlib
import json
import subprocess
import sys
import tomllib
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalerl.core.errors import DataError, RecipeError, ScalerlError, UnknownNameError, UsageError
from scalerl.recipes import Recipe, applied, changes, load_resolved, recipe_names, resolve, scale_names
from scalerl.recipes.load import ingredient_layers
from tests.plugins import install

CATALOGUE = [(recipe, scale) for recipe in recipe_names() for scale in scale_names()]
NAMES = st.sampled_from(recipe_names())
SCALES = st.sampled_from(scale_names())
OVERRIDES = st.lists(
    st.one_of(
        st.builds("pipeline.k={}".format, st.integers(1, 20)),
        st.builds("batch.group={}".format, st.integers(2, 64)),
        st.builds("trainer.optimizer.learning_rate={!r}".format, st.floats(1e-8, 1.0)),
        st.builds("objective.loss={}".format, st.sampled_from(["cispo", "dapo", "grpo", "gspo", "reinforce"])),
        # A critic has no scale of the group.
        st.builds("objective.advantage.scale={}".format, st.sampled_from(["none", "batch"])),
        st.sampled_from(
            ["warm_start=none", "budget.flops=600 GFLOP", "budget.usd=12.5", "length.control=truncation", "curriculum.filters=[]"]
        ),
    ),
    max_size=4,
)


def shuffled(tree, order):
    if isinstance(tree, dict):
        keys = list(tree)
        order.shuffle(keys)
        return {key: shuffled(tree[key], order) for key in keys}
    return tree


@pytest.mark.parametrize(("recipe", "scale"), CATALOGUE)
def test_every_catalogue_recipe_is_complete_on_every_scale(recipe, scale):
    resolved = resolve(recipe, scale=scale)
    assert resolved.name == recipe
    assert resolved.about


def test_the_catalogue_is_what_the_sources_describe():
    """Ingredients as arXiv 2510.13786 compares them; the pairs are (loss, aggregation, advantage scale, head, schedule, kv)."""
    ingredients = {
        name: (
            recipe.objective.loss.name(),
            recipe.objective.aggregation.name(),
            recipe.objective.advantage.scale,
            recipe.model.head,
            recipe.pipeline.schedule.name(),
            recipe.pipeline.k,
            recipe.engine.kv,
        )
        for name in recipe_names()
        if (recipe := resolve(name, scale="paper-8b"))
    }
    assert ingredients == {
        "scalerl": ("cispo", "prompt", "batch", "fp32", "pipeline_rl", 8, "keep"),
        "ppo-critic": ("ppo", "token", "batch", "fp32", "pipeline_rl", 8, "keep"),
        "minimax-m1": ("cispo", "prompt", "group", "fp32", "ppo_off_policy", 8, "keep"),
        "qwen2.5-dapo": ("dapo", "prompt", "group", "body", "ppo_off_policy", 8, "keep"),
        "magistral": ("dapo", "prompt", "group", "body", "pipeline_rl", 8, "keep"),
        "deepseek-grpo": ("grpo", "sample", "group", "body", "ppo_off_policy", 8, "keep"),
        "million-grpo": ("grpo", "sample", "group", "body", "pipeline_rl", 8, "reprefill"),
        "baseline": ("dapo", "sample", "group", "body", "pipeline_rl", 8, "keep"),
    }


def test_the_paper_scale_is_the_papers():
    recipe = resolve("scalerl", scale="paper-8b")
    assert (recipe.batch.num_prompts, recipe.batch.group, recipe.batch.num_completions) == (48, 16, 768)
    assert recipe.length.control.after_tokens == (10240, 12288)
    assert recipe.length.completion_tokens == 12288 + 2048
    assert recipe.objective.loss.cap == 5.0
    assert (recipe.trainer.optimizer.learning_rate, recipe.trainer.optimizer.warmup_steps, recipe.trainer.optimizer.eps) == (
        5e-7,
        100,
        1e-15,
    )
    assert (recipe.runtime.generator_devices + recipe.runtime.trainer_devices) * recipe.budget.hours == 16_000
    assert resolve("million-grpo", scale="paper-8b").batch.num_completions == 4 * 768


@given(NAMES, SCALES, OVERRIDES)
def test_toml_round_trip_keeps_recipe_and_hash(name, scale, overrides):
    recipe = resolve(name, scale=scale, overrides=overrides)
    again = Recipe.model_validate(tomllib.loads(recipe.to_toml()))
    assert again == recipe
    assert again.hash == recipe.hash
    assert again.to_toml() == recipe.to_toml()


@given(NAMES, SCALES, OVERRIDES, st.randoms(use_true_random=False))
def test_the_hash_does_not_depend_on_the_order_of_keys(name, scale, overrides, order):
    recipe = resolve(name, scale=scale, overrides=overrides)
    assert Recipe.model_validate(shuffled(recipe.tree(), order)).hash == recipe.hash


@given(NAMES, OVERRIDES, NAMES, OVERRIDES)
def test_the_diff_of_two_recipes_applied_to_one_gives_the_other(left_name, left_overrides, right_name, right_overrides):
    left, right = resolve(left_name, overrides=left_overrides), resolve(right_name, overrides=right_overrides)
    again = Recipe.model_validate(applied(left.tree(), changes(left.tree(), right.tree())))
    assert again == right
    assert again.hash == right.hash


def test_the_hash_is_that_of_the_canonical_json_and_the_same_in_another_process():
    recipe = resolve("scalerl", scale="paper-8b")
    settings = {key: value for key, value in recipe.tree().items() if key not in ("name", "about")}
    canonical = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    assert recipe.hash == hashlib.sha256(canonical.encode()).hexdigest()[:12]
    code = "from scalerl.recipes import resolve; print(resolve('scalerl', scale='paper-8b').hash)"
    for seed in ("1", "2"):
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed})
        assert other.stdout.strip() == recipe.hash


def test_labels_are_no_part_of_the_hash_and_settings_are():
    recipe = resolve("scalerl")
    assert recipe.model_copy(update={"name": "another", "about": "text"}).hash == recipe.hash
    assert resolve("scalerl", overrides=["seed=1"]).hash != recipe.hash
    assert resolve("scalerl", overrides=["objective.loss.cap=4.5"]).hash != recipe.hash


def test_a_resolved_recipe_is_the_same_on_every_scale(tmp_path):
    recipe = resolve("magistral", scale="paper-8b", overrides=["batch.group=8"])
    path = tmp_path / "recipe.toml"
    path.write_text(recipe.to_toml())
    assert load_resolved(path) == recipe
    assert resolve(path) == recipe
    with pytest.raises(RecipeError, match=r"recipe\.toml: it has every section, so no scale lies under it; leave --scale out"):
        resolve(path, scale="laptop")
    with pytest.raises(UnknownNameError, match="there is no scale 'labtop'"):
        resolve(path, scale="labtop")


def test_a_file_extends_a_catalogue_recipe_or_a_neighbour(tmp_path):
    (tmp_path / "child.toml").write_text('extends = "./parent.toml"\n[batch]\ngroup = 4\n')
    (tmp_path / "parent.toml").write_text('extends = "magistral"\nabout = "not the child"\n[pipeline]\nk = 3\n')
    recipe = resolve(tmp_path / "child.toml")
    assert (recipe.name, recipe.about, recipe.batch.group, recipe.pipeline.k, recipe.objective.loss.name()) == ("child", "", 4, 3, "dapo")
    (tmp_path / "parent.toml").write_text(f'extends = "../{tmp_path.name}/child.toml"\n')
    with pytest.raises(RecipeError, match=r"extends itself: \S+child\.toml -> \S+parent\.toml -> \S+child\.toml;"):
        resolve(tmp_path / "child.toml")


def test_a_file_may_be_called_like_the_catalogue_recipe_that_it_extends(tmp_path, monkeypatch):
    (tmp_path / "scalerl.toml").write_text('extends = "scalerl"\n[pipeline]\nk = 3\n')
    monkeypatch.chdir(tmp_path)
    assert resolve("scalerl.toml").pipeline.k == 3


def test_selecting_another_loss_drops_the_settings_of_the_one_before():
    recipe = resolve("scalerl", overrides=["objective.loss.cap=8", "objective.loss=gspo"])
    assert recipe.objective.loss.selection() == {"type": "gspo", "clip_low": 0.2, "clip_high": 0.28}


LAPTOP = resolve("scalerl", scale="laptop")


@pytest.mark.parametrize(
    ("base", "override", "kept"),
    [
        ("million-grpo", "engine=vllm", lambda recipe: (recipe.engine.kv, recipe.engine.slots) == ("reprefill", LAPTOP.engine.slots)),
        ("million-grpo", "engine.type=vllm", lambda recipe: recipe.engine.kv == "reprefill"),
        ("baseline", 'model={type="checkpoint", path="x"}', lambda recipe: (recipe.model.head, recipe.model.dtype) == ("body", "float32")),
        ("baseline", "objective.advantage=leave_one_out", lambda recipe: recipe.objective.advantage.scale == "group"),
        ("scalerl", "trainer=fsdp2", lambda recipe: recipe.trainer.optimizer == LAPTOP.trainer.optimizer),
    ],
)
def test_selecting_another_component_keeps_what_the_family_shares(base, override, kept):
    assert kept(resolve(base, overrides=[override]))


def test_a_list_item_can_be_taken_out():
    assert resolve("scalerl", overrides=["curriculum.filters.0=none"]).curriculum.filters == ()


@pytest.mark.parametrize(
    ("defaults", "sentence"),
    [
        ("defaults = 3", "scale.toml: defaults: 3 is no table; give a table of settings by component"),
        ("defaults.objective = 3", "scale.toml: defaults.objective: 3 is no table"),
        ("defaults.objectiv.loss.cispo.cap = 3", "scale.toml: defaults.objectiv: there is no such key; did you mean 'objective'?"),
        ("defaults.batch.group = 3", "scale.toml: defaults.batch: there is no such key"),
        ("defaults.objective.los.cispo.cap = 3", "scale.toml: defaults.objective.los: there is no such key; did you mean 'loss'?"),
        ("defaults.objective.loss.cispoo.cap = 3", "defaults.objective.loss.cispoo: there is no loss 'cispoo'; did you mean 'cispo'"),
        ("defaults.objective.loss.cispo = 3", "scale.toml: defaults.objective.loss.cispo: 3 is no table"),
        ("defaults.objective.loss.gspo.clip_lo = 3", "defaults.objective.loss.gspo.clip_lo: there is no such key; did you mean 'clip_low'"),
        ("defaults.objective.loss.gspo.clip_low = -3", "defaults.objective.loss.gspo.clip_low: -3 does not fit"),
    ],
)
def test_a_scales_defaults_are_checked_when_it_is_read(tmp_path, defaults, sentence):
    (tmp_path / "scale.toml").write_text(defaults)
    with pytest.raises(RecipeError) as caught:
        resolve("scalerl", scale=tmp_path / "scale.toml")
    assert sentence in str(caught.value)


def test_a_mistake_in_a_scale_names_the_scale(tmp_path):
    path = tmp_path / "scale.toml"
    laptop = resources.files("scalerl.recipes").joinpath("scales/laptop.toml").read_text()
    path.write_text(laptop.replace("after_tokens = [10, 12]", "after_tokens = [12, 10]"))
    with pytest.raises(
        RecipeError,
        match=r"scale\.toml: defaults\.length\.control\.interruption: after_tokens must hold 0 < least <= largest, not 12 and 10",
    ):
        resolve("scalerl", scale=path)
    path.write_text(laptop.replace("group = 16", "group = 0"))
    with pytest.raises(RecipeError, match=r"scale\.toml: batch\.group: 0 does not fit"):
        resolve("scalerl", scale=path)


def test_a_byte_order_mark_is_no_mistake(tmp_path):
    (tmp_path / "mine.toml").write_text('\ufeffextends = "scalerl"\n', encoding="utf-8")
    assert resolve(tmp_path / "mine.toml").hash == resolve("scalerl").hash


def test_a_plugin_brings_its_own_checks(tmp_path, monkeypatch):
    schedule = (
        "from typing import ClassVar\n\nfrom scalerl.pipeline.schedules import Schedule\n\n\n"
        "class Late(Schedule):\n    least_k: ClassVar[int] = 3\n"
    )
    install(tmp_path, "late", files={"plugs/late.py": schedule}, entry_points={"scalerl.schedules": "late.plugs"}, monkeypatch=monkeypatch)
    with pytest.raises(RecipeError, match=r"pipeline\.schedule = late .* pipeline\.k must be 3 or more"):
        resolve("scalerl", overrides=["pipeline.schedule=late", "pipeline.k=2"])


def test_a_plugin_without_its_folder_is_one_sentence(tmp_path, monkeypatch):
    install(tmp_path, "hollow", files={}, entry_points={"scalerl.recipes": "hollow.recipes"}, monkeypatch=monkeypatch)
    with pytest.raises(UsageError, match=r"^hollow\.recipes: this plug-in cannot be imported \(.*\); mend or uninstall it$"):
        recipe_names()


def test_a_plugin_adds_recipes_and_scales(tmp_path, monkeypatch):
    files = {
        "recipes/house.toml": 'extends = "scalerl"\nabout = "Ours."\n[pipeline]\nk = 4\n',
        "scales/tiny.toml": "[batch]\nprompts = 2\n",
    }
    points = {"scalerl.recipes": "guest.recipes", "scalerl.scales": "guest.scales"}
    install(tmp_path, "guest", files=files, entry_points=points, monkeypatch=monkeypatch)
    assert "house" in recipe_names()
    assert resolve("house").pipeline.k == 4
    assert "tiny" in scale_names()


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["objective.loss.capp=3"], "--set: objective.loss.capp: there is no such key; did you mean 'cap'?"),
        (["objective.los.cap=3"], "--set: objective.los: there is no such key; did you mean 'loss'?"),
        (["objective.loss=cisspo"], "--set: objective.loss: there is no loss 'cisspo'; did you mean 'cispo'"),
        (["curriculum.filters.0.refil=true"], "--set: curriculum.filters.0.refil: there is no such key; did you mean 'refill'?"),
        (["curriculum.filters.3.refill=true"], "'filters.3' is no item of a list; count items from 0"),
        (["trainer.optimizer.lr=1"], "--set: trainer.optimizer.lr: there is no such key"),
        (
            ["task.type=prompts", "task.path=x", "task.graded_by=exakt"],
            "--set: task.graded_by: there is no grader 'exakt'; did you mean 'exact'?",
        ),
        (["batch.prompts=-3"], "--set: batch.prompts: -3 does not fit; input should be greater than 0"),
        (["pipeline.k=true"], "--set: pipeline.k: 'true' is no number"),
        (["pipeline.k=eight"], "--set: pipeline.k: 'eight' does not fit"),
        (["budget.flops=30 tokens"], "--set: budget.flops: '30 tokens' is not in FLOP; give the amount in FLOP"),
        (["budget.usd=3 hours"], "--set: budget.usd: '3 hours' is not in USD"),
        (["budget.steps=none"], "give at least one of steps, flops, hours, usd"),
        (
            ["batch.group=1"],
            "recipe 'scalerl': batch.group = 1 leaves objective.advantage = centred no group to compare with: take 2 or more",
        ),
        (["length.completion_tokens=9"], "length.control = interruption needs 15 tokens, but length.completion_tokens is 9"),
        (["pipeline.schedule=ppo_off_policy", "pipeline.k=0"], "pipeline.k must be 1 or more"),
        (["length.control.after_tokens=[9, 3]"], "after_tokens must hold 0 < least <= largest"),
        (["model.num_heads=5"], "hidden_size 64 is no multiple of num_heads 5"),
        (["batch=none"], "batch: it is missing"),
        (["batch=3"], "--set: batch: 3 does not fit; give a table of its settings"),
        (["batch.group=1", "objective.advantage=critic"], "objective.advantage = critic learns from groups of equal rewards too"),
        (
            ["curriculum.filters=[{type = 'staleness', most_versions = 2, refill = true}]"],
            "filters.0.refill: True does not fit; input should be False",
        ),
        (["batch.prompts=0", "batch.group=0"], "(and 1 more fault);"),
        (["batch.prompts=0", "batch.group=0", "pipeline.k=-1"], "(and 2 more faults);"),
        (["budget.hours=inf"], "--set: budget.hours: inf does not fit; input should be a finite number"),
        (["objective.loss.cap=nan"], "--set: objective.loss.cap: nan does not fit"),
        (["trainer.optimizer.betas=[0.9, 1.0]"], "--set: trainer.optimizer.betas.1: 1.0 does not fit; input should be less than 1"),
        (["trainer.optimizer.betas=[0.9, -0.1]"], "--set: trainer.optimizer.betas.1: -0.1 does not fit"),
        (["trainer.optimizer.betas=[0.9, false]"], "--set: trainer.optimizer.betas: 'false' is no number"),
        (["length.control.after_tokens=[true, 12]"], "'true' is no number"),
        (["curriculum.filters.-1=none"], "'filters.-1' is no item of a list; count items from 0"),
        (["curriculum.filters.-1=zero_variance"], "'filters.-1' is no item of a list; count items from 0"),
        (["curriculum.filters.1=none"], "'filters.1' is no item of a list; count items from 0"),
        (["seed=1\npipeline.k=2"], "--set: 'seed=1\\npipeline.k=2' is more than one line"),
        (["pipeline\n.k=2"], "--set: 'pipeline\\n.k=2' is more than one line; write \\n in quotes for a line break"),
        (["nothing"], "'nothing' sets nothing; write --set path=value"),
    ],
)
def test_a_users_mistake_is_one_sentence_with_place_and_remedy(overrides, sentence):
    with pytest.raises(RecipeError) as caught:
        resolve("scalerl", overrides=overrides)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_mistake_in_a_file_names_the_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('extends = "scalerl"\n[pipeline]\nshedule = 3\n')
    with pytest.raises(RecipeError, match=r"mine\.toml: pipeline\.shedule: there is no such key; did you mean 'schedule'\?"):
        resolve(path)
    path.write_text("[pipeline\n")
    with pytest.raises(RecipeError, match=r"mine\.toml: this is no TOML"):
        resolve(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"mine\.toml: the file cannot be read"):
        resolve(path)
    with pytest.raises(UsageError, match="there is no such file"):
        resolve(tmp_path / "none.toml")
    with pytest.raises(UnknownNameError, match="there is no recipe 'scalrl'; did you mean 'scalerl'"):
        resolve("scalrl")
    with pytest.raises(UnknownNameError, match="there is no scale 'labtop'; did you mean 'laptop'"):
        resolve("scalerl", scale="labtop")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4), lambda inner: st.lists(inner, max_size=3), max_leaves=4
)


@given(
    st.sampled_from(["objective.loss", "batch", "task", "curriculum.filters", "budget.flops", "length.control.after_tokens", "x.y"]), JSON
)
def test_whatever_is_set_the_answer_is_a_recipe_or_a_sentence(path, value):
    try:
        resolve("scalerl", overrides=[f"{path}={json.dumps(value)}"])
    except ScalerlError as error:
        assert "\n" not in str(error)


def test_layers_follow_extends_from_the_root():
    assert [layer.origin for layer in ingredient_layers("magistral")] == ["scalerl.toml", "qwen2.5-dapo.toml", "magistral.toml"]
