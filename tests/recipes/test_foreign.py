"""Configurations of other libraries: bounds keep their meaning, defaults are theirs, and no setting is lost.

`fixtures/trl-1.16.0-grpo-config.json` is `GRPOConfig(...).to_dict()` of TRL 1.16.0 itself (transformers 5.24); the tables of
defaults were read off the two wheels. The other configurations are written by hand after the libraries' own examples.
"""

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scalerl.core.errors import DataError, RecipeError, ScalerlError, UsageError
from scalerl.recipes import resolve, scale_names
from scalerl.recipes.foreign import from_trl, from_verl
from scalerl.recipes.foreign.reading import defaults_of

DUMP = Path(__file__).parent / "fixtures" / "trl-1.16.0-grpo-config.json"
TRL, VERL = defaults_of("trl-1.16.0"), defaults_of("verl-0.9.1")
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
GRPO = {"algorithm.adv_estimator": "grpo", f"{ROLLOUT}.n": 8}

DAPO_SCRIPT = """\
#!/usr/bin/env bash
set -x
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo algorithm.filter_groups.enable=True \\
    data.train_batch_size=512 data.max_prompt_length=2048 data.max_response_length=20480 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-32B actor_rollout_ref.rollout.n=16 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=32 actor_rollout_ref.actor.clip_ratio_high=0.28 \\
    actor_rollout_ref.actor.clip_ratio_c=10.0 actor_rollout_ref.actor.loss_agg_mode=token-mean \\
    actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.actor.optim.lr_warmup_steps=10 \\
    +reward.reward_kwargs.overlong_buffer_cfg.enable=True +reward.reward_kwargs.overlong_buffer_cfg.len=4096 \\
    'trainer.logger=["console","wandb"]' trainer.total_training_steps=300 trainer.test_freq=5 $@  # the rest of the command
"""


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcd", "bcde", strict=True)
)
"""Five lines of YAML that are 66,000 values."""


def trl(tmp_path, **given):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(given))
    return from_trl(path)


def verl(tmp_path, **given):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**GRPO, **given}))
    return from_verl(path)


def resolved(translation, tmp_path, **options):
    path = tmp_path / "translated.toml"
    path.write_text(translation.to_toml())
    return resolve(path, **options)


def fates(translation):
    return {line.key: line.fate for line in translation.lines if line.key}


def notes(translation):
    return {line.key: line.note for line in translation.lines if line.key}


def test_a_dump_of_grpo_config_becomes_a_recipe_on_every_scale(tmp_path):
    translation = from_trl(DUMP)
    for scale in scale_names():
        recipe = resolved(translation, tmp_path, scale=scale)
        assert recipe.objective.loss.selection() == {"type": "cispo", "cap": 5.0}
        assert recipe.objective.aggregation.name() == "token"
        assert (recipe.objective.advantage.name(), recipe.objective.advantage.scale) == ("centred", "batch")
        assert [term.selection() for term in recipe.objective.terms] == [{"type": "kl", "coefficient": 0.001, "estimator": "k2"}]
        assert [item.name() for item in recipe.curriculum.filters] == ["overlong"]
        # 48 x 1 process x 2 accumulated in groups of 16; 8 micro-batches a generation are 4 updates of 2.
        assert (recipe.batch.num_prompts, recipe.batch.group) == (6, 16)
        assert (recipe.pipeline.schedule.name(), recipe.pipeline.k) == ("ppo_off_policy", 4)
        assert (recipe.model.head, recipe.model.dtype, recipe.seed, recipe.budget.steps) == ("fp32", "float32", 42, 400)
        optimizer = recipe.trainer.optimizer
        assert (optimizer.learning_rate, optimizer.warmup_steps, optimizer.betas) == (5e-7, 100, (0.9, 0.999))
        assert (optimizer.eps, optimizer.weight_decay, optimizer.clip_norm) == (1e-8, 0.0, 1.0)
        assert (recipe.engine.temperature, recipe.length.completion_tokens) == (1.0, 512)
    assert set(fates(translation)) >= set(json.loads(DUMP.read_text()))
    assert translation.left_out == ()


def test_an_empty_grpo_config_is_their_defaults(tmp_path):
    translation = trl(tmp_path)
    recipe = resolved(translation, tmp_path)
    assert recipe.objective.loss.selection() == {"type": "dapo", "clip_low": 0.2, "clip_high": 0.2}
    assert (recipe.objective.aggregation.name(), recipe.objective.advantage.scale) == ("token", "group")
    assert (recipe.batch.num_prompts, recipe.batch.group, recipe.pipeline.k) == (1, 8, 0)
    assert (recipe.trainer.optimizer.learning_rate, recipe.model.head, recipe.model.dtype) == (1e-6, "body", "bfloat16")
    # Their rate falls linearly to 0 unless told otherwise: silence about it would be wrong.
    assert [(line.key, line.value, line.stated) for line in translation.left_out] == [
        ("lr_scheduler_type", "linear", False),
        ("num_train_epochs", 3.0, False),
    ]


@pytest.mark.parametrize(
    ("given", "loss"),
    [
        # L4: an absolute cap there as here.
        ({"loss_type": "cispo", "epsilon_high": 5.0}, {"type": "cispo", "cap": 5.0}),
        # Left open it is epsilon, a cap of .2.
        ({"loss_type": "cispo"}, {"type": "cispo", "cap": 0.2}),
        ({"loss_type": "cispo", "epsilon": 0.3, "delta": 4.0}, {"type": "cispo", "cap": 0.3}),
        # Offsets.
        ({"loss_type": "grpo"}, {"type": "grpo", "clip": 0.2}),
        ({"loss_type": "grpo", "epsilon_high": 0.28}, {"type": "dapo", "clip_low": 0.2, "clip_high": 0.28}),
        ({"epsilon_high": 0.28, "delta": 4.0}, {"type": "dapo", "clip_low": 0.2, "clip_high": 0.28, "dual_clip": 4.0}),
        ({"loss_type": "bnpo", "epsilon": 0.1}, {"type": "grpo", "clip": 0.1}),
        ({"loss_type": "dr_grpo"}, {"type": "dr_grpo", "clip": 0.2}),
        ({"loss_type": "grpo", "delta": 4.0}, {"type": "ppo", "clip": 0.2, "dual_clip": 4.0}),
        (
            {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
            {"type": "gspo", "clip_low": 3e-4, "clip_high": 4e-4},
        ),
    ],
)
def test_L4_trl_bounds_keep_their_meaning(tmp_path, given, loss):
    assert trl(tmp_path, **given).tree["objective"]["loss"] == loss


@pytest.mark.parametrize(
    ("given", "aggregation"),
    [
        ({"loss_type": "grpo"}, {"type": "sample"}),
        ({"loss_type": "bnpo"}, {"type": "token"}),
        ({"loss_type": "dapo"}, {"type": "token"}),
        ({"loss_type": "cispo"}, {"type": "token"}),
        ({"loss_type": "dr_grpo", "max_completion_length": 1000}, {"type": "constant", "tokens": 1000}),
    ],
)
def test_trl_loss_types_say_the_aggregation(tmp_path, given, aggregation):
    assert trl(tmp_path, **given).tree["objective"]["aggregation"] == aggregation


def test_a_delta_that_no_loss_has_is_named(tmp_path):
    for other in ({"epsilon_high": 0.28, "delta": 1.2}, {"delta": 1.1}, {"importance_sampling_level": "sequence", "delta": 4.0}):
        assert fates(trl(tmp_path, **other))["delta"] == "left out"


def test_what_a_batch_counts(tmp_path):
    given = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4, "num_generations": 8}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(given))
    assert from_trl(path).tree["batch"] == {"prompts": 8, "group": 8}
    assert from_trl(path, processes=4).tree["batch"] == {"prompts": 32, "group": 8}
    # A dump tells for how many processes it was made.
    dumped = trl(tmp_path, **given, generation_batch_size=256, steps_per_generation=4)
    assert dumped.tree["batch"] == {"prompts": 32, "group": 8}
    assert dumped.tree["pipeline"] == {"schedule": {"type": "pipeline_rl"}, "k": 0}
    assert trl(tmp_path, **given, generation_batch_size=128).tree["pipeline"] == {"schedule": {"type": "ppo_off_policy"}, "k": 2}


@pytest.mark.parametrize(("stated", "scale"), [(True, "group"), (False, "none"), ("batch", "batch"), ("none", "none")])
def test_scale_rewards_may_be_a_boolean(tmp_path, stated, scale):
    assert trl(tmp_path, scale_rewards=stated).tree["objective"]["advantage"] == {"type": "centred", "scale": scale}


def test_what_a_batchs_rewards_are_divided_by_is_told(tmp_path):
    """TRL takes the std of the rewards themselves (grpo_trainer.py:2777), ours is that of what is left of them less the group's mean."""
    stds = {scale: notes(trl(tmp_path, scale_rewards=scale))["scale_rewards"] for scale in ("group", "batch", "none")}
    assert stds == {
        "group": "ddof 0; there ddof 1, plus 1e-4",
        "batch": "std of the rewards less their group's mean, ddof 0; there of the raw rewards, ddof 1, plus 1e-4",
        "none": "",
    }


@pytest.mark.parametrize(("kind", "is_told"), [("grpo", True), ("dr_grpo", True), ("dapo", False), ("cispo", False), ("bnpo", False)])
def test_masked_completions_that_trl_still_counts_are_told(tmp_path, kind, is_told):
    """Means over tokens lose them here as there; means over completions do not (grpo_trainer.py:3153, 3163)."""
    translation = trl(tmp_path, loss_type=kind, mask_truncated_completions=True)
    assert translation.tree["curriculum"]["filters"] == [{"type": "overlong"}]
    told = "masked completions leave the mean over completions; there they stay in its count"
    assert notes(translation)["mask_truncated_completions"] == (told if is_told else "")
    assert notes(trl(tmp_path, loss_type=kind, mask_truncated_completions=False))["mask_truncated_completions"] == ""


@pytest.mark.parametrize(
    ("given", "estimator", "note"),
    [
        ({}, "k2", "the gradient of their rho k3 is that of k2 times rho; here it is not weighted by rho"),
        (
            {"importance_sampling_level": "sequence"},
            "k2",
            "the gradient of their s_i k3, summed over a completion, is that of k2 times s_i; here it is not weighted by s_i",
        ),
        ({"use_bias_correction_kl": False}, "k3", ""),
    ],
)
def test_trls_beta_is_the_estimator_whose_gradient_it_has(tmp_path, given, estimator, note):
    """As their own trainer computes it: tests/objective/test_losses.py, test_trls_corrected_kl_has_the_gradient_of_k2_times_the_ratio."""
    translation = trl(tmp_path, beta=0.04, **given)
    assert translation.tree["objective"]["terms"] == [{"type": "kl", "coefficient": 0.04, "estimator": estimator}]
    assert {fates(translation)[key] for key in ("beta", "use_bias_correction_kl")} == {"translated"}
    assert notes(translation)["beta"] == note


def test_a_share_of_steps_is_counted_where_the_file_tells_of_how_many(tmp_path):
    given = {"warmup_steps": 0.1, "max_steps": 25, "eval_strategy": "steps", "eval_steps": 0.2}
    translation = trl(tmp_path, **given)
    assert translation.tree["trainer"]["optimizer"]["warmup_steps"] == 3
    assert translation.tree["evaluation"] == {"every_steps": 5}
    silent = fates(trl(tmp_path, **{**given, "max_steps": -1}))
    assert (silent["warmup_steps"], silent["eval_steps"]) == ("left out", "left out")
    assert trl(tmp_path, lr_scheduler_type="constant", warmup_steps=7).tree["trainer"]["optimizer"]["warmup_steps"] == 0


def test_a_correction_for_vllm_is_named_where_it_is_on(tmp_path):
    assert fates(trl(tmp_path, use_vllm=True))["vllm_importance_sampling_correction"] == "left out"
    assert "vllm_importance_sampling_correction" not in fates(trl(tmp_path))


def test_secrets_are_not_repeated(tmp_path):
    translation = trl(tmp_path, hub_token="hf_0123456789", WANDB_API_KEY="k-123")
    assert all("hf_0" not in str(line.value) and "k-123" not in str(line.value) for line in translation.lines)
    assert "k-123" not in translation.to_toml()


def test_the_empty_verl_configuration_is_their_defaults(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("[]")
    with pytest.raises(DataError, match=r"config\.yaml: it holds no settings"):
        from_verl(path)
    path.write_text("{}")
    recipe = resolved(from_verl(path), tmp_path)
    assert recipe.objective.loss.selection() == {"type": "ppo", "clip": 0.2, "dual_clip": 3.0}
    assert recipe.objective.advantage.selection() == {
        "type": "critic",
        "scale": "batch",
        "discount": 1.0,
        "decay": 1.0,
        "value_clip": 0.5,
        "passes": 1,
        "learning_rate_factor": 10.0,
    }
    assert (recipe.batch.num_prompts, recipe.batch.group) == (256, 1)
    assert (recipe.pipeline.schedule.name(), recipe.pipeline.k) == ("ppo_off_policy", 4)


def test_a_launch_script_of_verl_becomes_a_recipe(tmp_path):
    path = tmp_path / "dapo.sh"
    path.write_text(DAPO_SCRIPT)
    translation = from_verl(path)
    recipe = resolved(translation, tmp_path)
    assert recipe.model.selection()["path"] == "Qwen/Qwen2.5-32B"
    assert recipe.objective.loss.selection() == {"type": "dapo", "clip_low": 0.2, "clip_high": 0.28, "dual_clip": 10.0}
    assert (recipe.objective.aggregation.name(), recipe.objective.advantage.scale) == ("token", "group")
    assert [item.selection() for item in recipe.curriculum.filters] == [{"type": "zero_variance", "refill": True}]
    assert recipe.length.control.selection() == {"type": "penalty", "limit_tokens": 20480, "margin_tokens": 4096}
    # 512 prompts a round in updates of 32: the trainer's steps, warm-up and test_freq are rounds of 16 updates.
    assert (recipe.batch.num_prompts, recipe.batch.group, recipe.pipeline.k) == (32, 16, 16)
    assert (recipe.budget.steps, recipe.trainer.optimizer.warmup_steps, recipe.evaluation.every_steps) == (4800, 160, 80)
    left_out = {line.key: line.note for line in translation.left_out}
    assert set(left_out) == {f"{ROLLOUT}.val_kwargs.temperature"}
    assert fates(translation)["trainer.logger"] == "default"


@pytest.mark.parametrize(
    ("given", "loss"),
    [
        # L4: an offset there, an absolute cap here.
        ({f"{ACTOR}.policy_loss.loss_mode": "cispo", f"{ACTOR}.clip_ratio_high": 4.0}, {"type": "cispo", "cap": 5.0}),
        ({f"{ACTOR}.clip_ratio_c": 5.0}, {"type": "ppo", "clip": 0.2, "dual_clip": 5.0}),
        # clip_ratio is read only where the other two are null.
        ({f"{ACTOR}.clip_ratio": 0.4}, {"type": "ppo", "clip": 0.2, "dual_clip": 3.0}),
        (
            {f"{ACTOR}.clip_ratio": 0.4, f"{ACTOR}.clip_ratio_low": None, f"{ACTOR}.clip_ratio_high": None},
            {"type": "ppo", "clip": 0.4, "dual_clip": 3.0},
        ),
        (
            {f"{ACTOR}.policy_loss.loss_mode": "gspo", f"{ACTOR}.clip_ratio_low": 3e-4, f"{ACTOR}.clip_ratio_high": 4e-4},
            {"type": "gspo", "clip_low": 3e-4, "clip_high": 4e-4},
        ),
        ({f"{ACTOR}.policy_loss.loss_mode": "gpg"}, {"type": "reinforce"}),
        (
            {f"{ACTOR}.clip_ratio_low": None, f"{ACTOR}.clip_ratio": 0.1},
            {"type": "dapo", "clip_low": 0.1, "clip_high": 0.2, "dual_clip": 3.0},
        ),
    ],
)
def test_L4_verl_bounds_keep_their_meaning(tmp_path, given, loss):
    assert verl(tmp_path, **given).tree["objective"]["loss"] == loss


@pytest.mark.parametrize("mode", ["vanilla", "gspo", "cispo"])
def test_a_bound_that_is_null_points_to_clip_ratio(tmp_path, mode):
    given = {f"{ACTOR}.policy_loss.loss_mode": mode, f"{ACTOR}.clip_ratio_low": None, f"{ACTOR}.clip_ratio_high": 4.0}
    translation = verl(tmp_path, **given)
    assert fates(translation)[f"{ACTOR}.clip_ratio_low"] == "no effect"
    assert notes(translation)[f"{ACTOR}.clip_ratio_low"] == "null: clip_ratio says it"
    # What it points to raises small weights to .8, which a recipe cannot say.
    assert fates(translation)[f"{ACTOR}.clip_ratio"] == ("left out" if mode == "cispo" else "translated")


def test_one_setting_that_says_both_bounds_of_cispo_has_one_fate(tmp_path):
    given = {f"{ACTOR}.policy_loss.loss_mode": "cispo", f"{ACTOR}.clip_ratio_low": None, f"{ACTOR}.clip_ratio_high": None}
    (line,) = [line for line in verl(tmp_path, **given).lines if line.key == f"{ACTOR}.clip_ratio"]
    assert (line.fate, line.ours) == ("translated", {"type": "cispo", "cap": 1.2})
    assert line.note == "theirs is an offset: 1 + 0.2; there a weight below 0.8 is raised to it; here nothing bounds it from below"


@pytest.mark.parametrize(
    "reinforced",
    [
        {f"{ACTOR}.policy_loss.loss_mode": "gpg"},
        {"algorithm.rollout_correction.bypass_mode": True, "algorithm.rollout_correction.loss_type": "reinforce"},
        {
            "algorithm.rollout_correction.bypass_mode": True,
            "algorithm.rollout_correction.loss_type": "reinforce",
            "algorithm.rollout_correction.rollout_is": "token",
        },
    ],
)
def test_bounds_of_a_loss_without_a_ratio_have_no_effect(tmp_path, reinforced):
    bounds = {f"{ACTOR}.{key}": 0.3 for key in ("clip_ratio", "clip_ratio_low", "clip_ratio_high")}
    translation = verl(tmp_path, **reinforced, **bounds, **{f"{ACTOR}.clip_ratio_c": 5.0})
    assert {fates(translation)[key] for key in (*bounds, f"{ACTOR}.clip_ratio_c")} == {"no effect"}
    assert {line.fate for line in translation.lines if line.key in reinforced} <= {"translated", "no effect"}


def test_variables_of_a_script_are_put_in(tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(
        'n=8\nhigh="0.28"\nexport WANDB=1\npython3 -m verl algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=${n} \\\n'
        "  actor_rollout_ref.actor.clip_ratio_high=$high ~algorithm.pf_ppo data.val_files=$MINE/test.parquet\n"
    )
    translation = from_verl(path)
    assert translation.tree["batch"]["group"] == 8
    assert translation.tree["objective"]["loss"]["clip_high"] == 0.28
    assert {key: fates(translation).get(key) for key in ("n", "high", "WANDB", "~algorithm.pf_ppo", "data.val_files")} == {
        "n": None,
        "high": None,
        "WANDB": "left out",
        "~algorithm.pf_ppo": "left out",
        "data.val_files": "left out",
    }
    path.write_text(f"algorithm.adv_estimator=grpo {ROLLOUT}.n=$n")
    with pytest.raises(DataError, match=r"rollout\.n: '\$n' is a variable"):
        from_verl(path)


def test_words_may_be_a_list_as_hydra_writes_it(tmp_path):
    path = tmp_path / "overrides.yaml"
    path.write_text(f"- algorithm.adv_estimator=rloo\n- {ROLLOUT}.n=4\n- ++data.train_batch_size=256\n")
    assert from_verl(path).tree["batch"] == {"prompts": 256, "group": 4}


@pytest.mark.parametrize(
    ("key", "note"),
    [
        ("algorithm.kl_ctrl.kl_coef", "algorithm.use_kl_in_reward is false"),
        (f"{ACTOR}.kl_loss_coef", f"{ACTOR}.use_kl_loss is false"),
        ("distillation.distillation_loss.topk", "distillation.enabled is false"),
        ("critic.cliprange_value", "not read with grpo"),
        (f"{ACTOR}.clip_ratio", "not read: clip_ratio_low and clip_ratio_high are set by default"),
    ],
)
def test_what_is_not_read_has_no_effect(tmp_path, key, note):
    (line,) = [line for line in verl(tmp_path, **{key: 7}).lines if line.key == key]
    assert (line.fate, line.note) == ("no effect", note)


@pytest.mark.parametrize(
    ("read", "given"),
    [
        (trl, {"loss_type": "cispo", "epsilon_high": 5.0}),
        (verl, {f"{ACTOR}.policy_loss.loss_mode": "cispo", f"{ACTOR}.clip_ratio_high": 4.0, f"{ACTOR}.clip_ratio_low": 1.0}),
    ],
)
def test_L4_a_cap_of_5_weighs_as_the_case_says(tmp_path, read, given):
    loss = resolved(read(tmp_path, **given), tmp_path).objective.loss
    log_probs = torch.tensor([[-1.0], [-4.0], [-1.0]], dtype=torch.float64, requires_grad=True)
    behaviour, advantages = torch.tensor([[-3.0], [-1.0], [-3.0]]).double(), torch.tensor([[1.0], [-1.0], [-1.0]]).double()
    values = -loss.objective(log_probs, behaviour, advantages, torch.ones(3, 1, dtype=torch.bool))
    values.sum().backward()
    assert values.flatten().tolist() == pytest.approx([5.0, -0.1991483, -5.0], abs=1e-6)
    assert log_probs.grad.flatten().tolist() == pytest.approx([-5.0, 0.0497871, 5.0], abs=1e-6)


@pytest.mark.parametrize(
    ("given", "loss"),
    [
        ({"rollout_is": "token"}, {"type": "truncated", "level": "token", "cap": 2.0}),
        ({"rollout_is": "sequence", "rollout_is_threshold": 3}, {"type": "truncated", "level": "sequence", "cap": 3.0}),
        ({"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"}, {"type": "masked", "level": "token", "low": 0.5, "high": 5.0}),
        ({"bypass_mode": True, "loss_type": "reinforce"}, {"type": "reinforce"}),
        ({"bypass_mode": True}, {"type": "ppo", "clip": 0.2, "dual_clip": 3.0}),
    ],
)
def test_a_correction_of_one_update_is_the_loss(tmp_path, given, loss):
    corrected = {f"algorithm.rollout_correction.{key}": value for key, value in given.items()}
    assert verl(tmp_path, **corrected, **{"data.train_batch_size": 256}).tree["objective"]["loss"] == loss


def test_a_correction_that_bypass_mode_does_not_apply_has_no_effect(tmp_path):
    """Their PPO keeps its weights for metrics only: its ratio is taken to the sampler already (core_algos.py:2495)."""
    given = {"rollout_is": "token", "rollout_is_threshold": 3.0, "bypass_mode": True}
    corrected = fates(verl(tmp_path, **{f"algorithm.rollout_correction.{key}": value for key, value in given.items()}))
    assert {corrected[f"algorithm.rollout_correction.{key}"] for key in given} == {"no effect"}


def test_a_correction_beside_a_moving_policy_is_named(tmp_path):
    translation = verl(tmp_path, **{"algorithm.rollout_correction.rollout_is": "token"})
    assert translation.tree["objective"]["loss"]["type"] == "ppo"
    assert fates(translation)["algorithm.rollout_correction.rollout_is"] == "left out"


@pytest.mark.parametrize(
    ("given", "aggregation"),
    [
        ({f"{ACTOR}.loss_agg_mode": "token-mean"}, {"type": "token"}),
        ({f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean"}, {"type": "sample"}),
        ({f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum"}, {"type": "constant", "tokens": 1}),
        ({f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum-norm"}, {"type": "constant", "tokens": 512}),
        ({f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum-norm", f"{ACTOR}.loss_scale_factor": 99}, {"type": "constant", "tokens": 99}),
    ],
)
def test_verl_aggregations_by_name(tmp_path, given, aggregation):
    assert verl(tmp_path, **given).tree["objective"]["aggregation"] == aggregation


@pytest.mark.parametrize(
    ("given", "advantage"),
    [
        ({}, {"type": "centred", "scale": "group"}),
        ({"algorithm.norm_adv_by_std_in_grpo": False}, {"type": "centred", "scale": "none"}),
        ({"algorithm.adv_estimator": "rloo"}, {"type": "leave_one_out", "scale": "none"}),
        ({"algorithm.adv_estimator": "reinforce_plus_plus_baseline"}, {"type": "centred", "scale": "batch"}),
    ],
)
def test_verl_estimators_by_name(tmp_path, given, advantage):
    assert verl(tmp_path, **given).tree["objective"]["advantage"] == advantage


@pytest.mark.parametrize(
    ("given", "pipeline"),
    [
        ({"data.train_batch_size": 256}, {"schedule": {"type": "pipeline_rl"}, "k": 0}),
        ({}, {"schedule": {"type": "ppo_off_policy"}, "k": 4}),
        # A trajectory that spans 8 versions of 4 updates each is 31 updates old at most.
        ({"trainer.v1.trainer_mode": "separate_async"}, {"schedule": {"type": "pipeline_rl"}, "k": 31, "on_stale": "drop"}),
        (
            {
                "trainer.v1.trainer_mode": "colocate_async",
                "data.train_batch_size": 256,
                "trainer.v1.sampler.max_off_policy_threshold": 2,
                "trainer.v1.sampler.max_off_policy_strategy": "wait",
            },
            {"schedule": {"type": "pipeline_rl"}, "k": 1, "on_stale": "hold"},
        ),
        (
            {"async_training.staleness_threshold": 0.5, "async_training.trigger_parameter_sync_step": 4},
            {"schedule": {"type": "pipeline_rl"}, "k": 5},
        ),
    ],
)
def test_staleness_is_counted_in_updates(tmp_path, given, pipeline):
    assert verl(tmp_path, **given).tree["pipeline"] == pipeline


def test_terms_are_translated_where_they_act(tmp_path):
    given = {f"{ACTOR}.use_kl_loss": True, f"{ACTOR}.kl_loss_type": "mse", f"{ACTOR}.entropy_coeff": 0.01}
    assert verl(tmp_path, **given).tree["objective"]["terms"] == [
        {"type": "kl", "coefficient": 0.001, "estimator": "k2"},
        {"type": "entropy", "coefficient": 0.01},
    ]
    assert "terms" not in verl(tmp_path).tree["objective"]
    assert fates(verl(tmp_path, **{"algorithm.use_kl_in_reward": True}))["algorithm.use_kl_in_reward"] == "left out"


@pytest.mark.parametrize(
    ("kind", "estimator"),
    [
        ("kl", "k1"), ("mse", "k2"), ("low_var_kl", "k3"), ("k1", "k1"), ("k2", "k2"), ("k3", "k3"),
        *((f"{kind}+", "k2") for kind in ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3")),
    ],
)  # fmt: skip
def test_verls_kl_is_the_estimator_whose_gradient_it_has(tmp_path, kind, estimator):
    """A + stands for the gradient of k2, whatever the value (core_algos.py:2211)."""
    given = {f"{ACTOR}.use_kl_loss": True, f"{ACTOR}.kl_loss_type": kind}
    assert verl(tmp_path, **given).tree["objective"]["terms"] == [{"type": "kl", "coefficient": 0.001, "estimator": estimator}]


def test_a_kl_of_verl_that_no_estimator_is_is_refused(tmp_path):
    with pytest.raises(DataError, match="kl_loss_type: 'abs' has no counterpart here; those with one are kl, k1, mse"):
        verl(tmp_path, **{f"{ACTOR}.use_kl_loss": True, f"{ACTOR}.kl_loss_type": "abs"})


def test_the_whole_of_verls_defaults_leaves_little_out(tmp_path):
    path = tmp_path / "all.json"
    path.write_text(json.dumps({key: value for key, value in VERL.items() if not key.startswith("async_training.")}))
    translation = from_verl(path)
    assert [line.key for line in translation.left_out] == ["trainer.total_epochs", f"{ROLLOUT}.val_kwargs.temperature"]
    assert resolved(translation, tmp_path)


def test_comments_in_the_recipe_say_what_is_left_out(tmp_path):
    translation = trl(tmp_path, top_p=0.9, epsilom=3, reward_funcs="x\n[batch]\ngroup = 2")
    text = translation.to_toml()
    assert "# left out: top_p = 0.9: a ratio to log-probs of a cut distribution would be wrong\n" in text
    assert "# left out: epsilom = 3: no setting of TRL 1.16.0; did you mean 'epsilon'?\n" in text
    assert resolved(translation, tmp_path).batch.group == 8


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.json", "{", "a.json: this is no JSON"),
        ("a.json", '{"beta": 0, "beta": 1}', "a.json: the key 'beta' comes twice"),
        ("a.json", "[" * 5000, "a.json: this is no JSON"),
        ("a.json", "9" * 5000, "a.json: this is no JSON"),
        ("a.json", "3", "a.json: it holds no settings by name"),
        ("a.yaml", "beta: 0\nbeta: 1", "a.yaml: this is no plain YAML: the key 'beta' comes twice in line 2"),
        ("a.yaml", "beta: !!python/object/apply:os.system ['true']", "a.yaml: this is no plain YAML: could not determine a constructor"),
        ("a.yaml", "beta: [", "a.yaml: this is no plain YAML"),
        ("a.yaml", "- just\n- words", "a.yaml: it holds no settings by name"),
        ("a.yaml", "a: &a\n  b: *a", "a.yaml: it unfolds to more than"),
        ("a.yaml", LAUGHS, "a.yaml: it unfolds to more than"),
        ("a.yaml", "x: " + "y" * 300_000, "bytes are more than any configuration has"),
        ("a.yaml", "loss_type: sapo", "loss_type: 'sapo' has no counterpart here; those with one are grpo, bnpo, dapo, cispo, dr_grpo"),
        ("a.yaml", "loss_type: cispoo", "a.yaml: loss_type: 'cispoo' has no counterpart here"),
        ("a.yaml", "learning_rate: fast", "a.yaml: learning_rate: 'fast' is not a number; give a number"),
        ("a.yaml", "learning_rate: .inf", "a.yaml: learning_rate: inf is not a number"),
        ("a.yaml", "num_generations: 2.5", "a.yaml: num_generations: 2.5 is not a whole number"),
        ("a.yaml", "num_generations: 1", "a.yaml: 8 completions x 1 accumulated in groups of 1 are no batch"),
        ("a.yaml", "num_generations: 16", "a.yaml: one update takes 8 completions, which are no whole groups of 16; say with --processes"),
        ("a.yaml", "gradient_accumulation_steps: 2\nsteps_per_generation: 3", "lasts for 3 / 2 updates, which is no whole number"),
        ("a.yaml", "seed: true", "a.yaml: seed: True is not a number"),
        ("a.txt", 'beta="', "a.txt: its words cannot be told apart"),
    ],
)  # fmt: skip
def test_what_is_no_configuration_is_one_sentence(tmp_path, name, text, sentence):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        from_trl(path)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3


def test_other_mistakes(tmp_path):
    with pytest.raises(UsageError, match="there is no such file"):
        from_trl(tmp_path / "none.json")
    with pytest.raises(RecipeError, match=r"config\.json: engine\.temperature: -1\.0 does not fit"):
        trl(tmp_path, temperature=-1)
    with pytest.raises(DataError, match=r"rollout\.n: '\$\{n\}' is a variable; give the resolved configuration"):
        verl(tmp_path, **{f"{ROLLOUT}.n": "${n}"})
    with pytest.raises(DataError, match="no multiple of an update's 256"):
        verl(tmp_path, **{"data.train_batch_size": 100})
    with pytest.raises(DataError, match=r"1 are no batch with algorithm\.adv_estimator=grpo"):
        verl(tmp_path, **{f"{ROLLOUT}.n": 1})
    for key, value in [
        ("algorithm.adv_estimator", "remax"),
        (f"{ACTOR}.policy_loss.loss_mode", "clip_cov"),
        (f"{ACTOR}.loss_agg_mode", "token-sum"),
    ]:
        with pytest.raises(DataError, match=f"{key}: '{value}' has no counterpart here; those with one are"):
            verl(tmp_path, **{key: value})
    path = tmp_path / "config.json"
    path.write_text("{}")
    with pytest.raises(UsageError, match="--processes: 0 processes cannot train"):
        from_trl(path, processes=0)


VALUES = st.none() | st.booleans() | st.integers(-3, 99) | st.floats(-2, 2) | st.sampled_from(
    ["", "no", "steps", "token", "group", "cispo", "1e-6", "${x}", "a\nb", "grpo", "sync"]
) | st.lists(st.integers(0, 3), max_size=2)  # fmt: skip


def near(defaults):
    """Settings of a library at their default, near it, or at anything, and some that it does not have."""
    keys = st.sampled_from(sorted(defaults)) | st.sampled_from(["lerning_rate", "x.y", "model_name_or_path", "warmup_ratio"])
    return st.dictionaries(keys, VALUES, max_size=5) | st.lists(keys, max_size=30).map(
        lambda found: {key: defaults.get(key) for key in found}
    )


@settings(deadline=None, max_examples=150)
@given(near(TRL))
def test_no_setting_of_trl_is_lost(tmp_path_factory, given):
    check_nothing_is_lost(from_trl, given, TRL, tmp_path_factory)


@settings(deadline=None, max_examples=150)
@given(near(VERL))
def test_no_setting_of_verl_is_lost(tmp_path_factory, given):
    check_nothing_is_lost(from_verl, {**GRPO, **given}, VERL, tmp_path_factory)


def check_nothing_is_lost(read, given, defaults, folders):
    folder = folders.mktemp("foreign")
    path = folder / "config.json"
    path.write_text(json.dumps(given))
    try:
        translation = read(path)
    except ScalerlError as error:
        assert "\n" not in str(error)
        assert error.exit_code in (2, 3)
        return
    by_key = {}
    for line in translation.lines:
        by_key.setdefault(line.key, []).append(line)
    assert given.keys() <= by_key.keys()
    for key, lines in by_key.items():
        fates = {line.fate for line in lines}
        assert len(fates) == 1, (key, fates)
        assert (fates == {"translated"}) == all(line.path for line in lines)
        if fates == {"default"}:
            assert given[key] == defaults[key]
        if key and key not in given:
            assert fates <= {"translated", "left out"}
    assert resolved(translation, folder).name == "config"


def test_the_tables_of_defaults_are_of_plain_values():
    assert (len(TRL), TRL["loss_type"], TRL["epsilon"], TRL["learning_rate"]) == (191, "dapo", 0.2, 1e-6)
    assert (VERL[f"{ACTOR}.clip_ratio_c"], VERL["algorithm.adv_estimator"], VERL["trainer.v1.trainer_mode"]) == (3.0, "gae", "sync")
    assert not any(isinstance(value, float) and math.isnan(value) for value in [*TRL.values(), *VERL.values()])
