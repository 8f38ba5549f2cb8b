"""A configuration of verl 0.9.1 as a recipe: the resolved YAML, or the `key=value` words of its command.

    scalerl recipe from-verl run.sh > mine.toml

Where the two differ, by file and line of the verl 0.9.1 sources (trainer/ppo/core_algos.py unless named):

* `clip_ratio_low` and `clip_ratio_high` are offsets for every loss (1348); `clip_ratio` is read only where one of them is null
  (1322), so that setting it alone changes nothing. CISPO takes them for offsets too, and its lower one raises small weights
  (2079): an upper offset of 4 is a cap of 5 here. `clip_ratio_c` is an ABSOLUTE ratio, the dual clip that `vanilla` always has (1355).
* The ratio is taken to log-probs that the trainer recomputed, unless `rollout_correction.bypass_mode` takes the sampler's
  (trainer/ppo/v1/trainer_base.py:1641), as is always done here.
* The group's std is the sample's, plus 1e-6 (321); here the population's.
* `train_batch_size` and `ppo_mini_batch_size` count PROMPTS, the latter times `rollout.n` make one update
  (trainer/ppo/v1/trainer_base.py:1829); train_batch_size / ppo_mini_batch_size updates use what one version sampled. Steps of
  the trainer are such rounds, and so are those of its warm-up (workers/engine_workers.py:308).
* `max_off_policy_threshold` counts versions that a trajectory spans, its own included (trainer/ppo/v1/replay_buffer.py:528).
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from scalerl.core.errors import DataError
from scalerl.recipes.foreign.files import settings_of
from scalerl.recipes.foreign.reading import Reading, Translation, defaults_of

RELEASE = "verl-0.9.1"
LIBRARY = "verl 0.9.1"

_ACTOR, _ROLLOUT, _MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.model"
_OPTIM, _CORRECTION, _V1 = f"{_ACTOR}.optim", "algorithm.rollout_correction", "trainer.v1"
_LOSS_MODE, _LOW, _HIGH = f"{_ACTOR}.policy_loss.loss_mode", f"{_ACTOR}.clip_ratio_low", f"{_ACTOR}.clip_ratio_high"
_CLIP, _DUAL_CLIP = f"{_ACTOR}.clip_ratio", f"{_ACTOR}.clip_ratio_c"
_CLIPS = (_CLIP, _LOW, _HIGH, _DUAL_CLIP)
_MINI_BATCH, _SYNC_STEP = f"{_ACTOR}.ppo_mini_batch_size", f"{_V1}.separate_async.parameter_sync_step"

_ESTIMATOR = "algorithm.adv_estimator"

_LOSS_MODES = ("vanilla", "gspo", "cispo", "gpg")
_ESTIMATORS = ("gae", "grpo", "grpo_vectorized", "rloo", "rloo_vectorized", "reinforce_plus_plus_baseline")
_KL_ESTIMATORS = {"kl": "k1", "k1": "k1", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3"} | dict.fromkeys(
    ("kl+", "k1+", "abs+", "mse+", "k2+", "low_var_kl+", "k3+"), "k2"
)
"""By kl_loss_type (2228); one that ends in + has the value of its name and the gradient of k2 (2211). That of abs is nobody's."""

_SWITCHES = {
    "algorithm.kl_": "algorithm.use_kl_in_reward",
    "algorithm.filter_groups.": "algorithm.filter_groups.enable",
    "algorithm.pf_ppo.": "algorithm.use_pf_ppo",
    f"{_CORRECTION}.rollout_is_": f"{_CORRECTION}.rollout_is",
    f"{_CORRECTION}.rollout_rs_": f"{_CORRECTION}.rollout_rs",
    f"{_CORRECTION}.loss_type": f"{_CORRECTION}.bypass_mode",
    f"{_ACTOR}.kl_loss_": f"{_ACTOR}.use_kl_loss",
    f"{_MODEL}.lora_": f"{_MODEL}.lora_rank",
    f"{_MODEL}.lora.": f"{_MODEL}.lora.rank",
    f"{_MODEL}.mtp.": f"{_MODEL}.mtp.enable",
    f"{_ROLLOUT}.multi_turn.": f"{_ROLLOUT}.multi_turn.enable",
    "reward.reward_model.": "reward.reward_model.enable",
    "reward_model.": "reward_model.enable",
    "distillation.": "distillation.enabled",
}
"""By what keys begin with: the setting that must be on for them to be read."""

_HOW_IT_RUNS = re.compile(
    r"(\.|^)_target_$|\.profiler\.|^(global_profiler|ray_kwargs|transfer_queue|skip|sandbox_fusion|hydra)\.|^rollout\.n(nodes|_gpus)"
    r"|^actor_rollout_ref\.(ref\.|nccl_timeout|hybrid_engine)"
    r"|^(actor_rollout_ref\.actor|critic)\.(fsdp_config|megatron|veomni|torchtitan|checkpoint|ppo_micro|ppo_max_token|ppo_infer|use_dynamic"
    r"|strategy|use_torch_compile|use_fused|use_prefix|use_remove_padding|ulysses|entropy_from|entropy_checkpointing|calculate_"
    r"|pad_to|forward_|shuffle|data_loader_seed|load_weight|use_rollout_log_probs|rollout_n)"
    r"|^actor_rollout_ref\.rollout\.(name|mode|nnodes|n_gpus|gpu_memory|enforce_eager|cudagraph|free_cache|tensor_model|data_parallel"
    r"|expert_parallel|pipeline_model|max_num|max_model_len|enable_chunked|enable_prefix|scheduling|load_format|layered|log_prob_"
    r"|disable_log|over_sample|multi_stage|engine_kwargs|router|agent\.num_workers|checkpoint_engine|trace|skip_tokenizer|prometheus"
    r"|disaggregation|moe_load|calculate_log_probs|full_determinism|seed|dtype|logprobs_mode|update_weights|standalone_gpu)"
    r"|^(actor_rollout_ref|critic)\.model\.(use_shm|enable_gradient|enable_activation|use_remove|use_liger|use_fused|fused|tiled|hf_config)"
    r"|^data\.(use_shm|dataloader|filter_overlong|val_batch|gen_batch|return_|image_|video_|audio_|validation_shuffle|shuffle)"
    r"|^trainer\.(balance|project|experiment|logger|log_|rollout_data|validation_data|nnodes|n_gpus|esi|resume|checkpoint_callback|val_"
    r"|default_|del_local|max_critic|ray_wait|device|use_v1|use_legacy)|^trainer\.v1\..*(warmup_batches|hybrid_rollout|sampler_kwargs)"
    r"|^reward\.(num_workers|sandbox_fusion)|^async_training\.(dynamic|use_|concurrent)"
)

_HINTS = {
    "defaults": "files that hydra composes are not looked for: give the resolved configuration",
    "data.train_files": "set task: the prompts and who grades them",
    "data.val_files": "task.num_held_out prompts are held out of the same file",
    f"{_MODEL}.trust_remote_code": "never taken over: set model.trust_remote_code yourself",
    **dict.fromkeys((f"{_ROLLOUT}.top_p", f"{_ROLLOUT}.top_k"), "a ratio to log-probs of a cut distribution would be wrong"),
    **dict.fromkeys(("custom_reward_function.path", "reward.custom_reward_function.path"), "set task.graded_by: reward functions are code"),
}


def from_verl(path: str | Path) -> Translation:
    """The recipe of a verl configuration.

    Args:
        path: a YAML or JSON file, or any other text with `key=value` words in it, such as a launch script.

    Raises:
        UsageError: there is no such file.
        DataError: it is no configuration, or asks for a loss or an advantage that has no counterpart.
    """
    file = Path(path)
    reading = Reading(settings_of(file, nested=True), defaults_of(RELEASE), origin=file.name)
    _translate_model(reading)
    updates = _translate_batch(reading)
    _translate_schedule(reading, updates)
    _translate_loss(reading, updates)
    _translate_aggregation(reading)
    _translate_advantage(reading)
    _translate_terms(reading)
    _translate_lengths(reading)
    _translate_optimizer(reading, updates)
    _translate_bookkeeping(reading, updates)
    for prefix, switch in _SWITCHES.items():
        reading.pass_over_below(prefix, switch=switch)
    return reading.finish(file.stem, library=LIBRARY, how_it_runs=_HOW_IT_RUNS, hints=_HINTS)


def _translate_model(reading: Reading) -> None:
    if f"{_MODEL}.path" in reading.given:
        reading.translate("model.type", "checkpoint")
        reading.translate("model.path", reading.word(f"{_MODEL}.path"), f"{_MODEL}.path")
    reading.translate("model.head", "body", note="logits in the precision of the body")
    dtype = reading.word(f"{_ACTOR}.fsdp_config.dtype")
    if dtype in ("bfloat16", "float32"):
        reading.translate("model.dtype", dtype, f"{_ACTOR}.fsdp_config.dtype")
    else:
        reading.leave_out(f"{_ACTOR}.fsdp_config.dtype", note="the body is float32 or bfloat16")
    ranks = [key for key in (f"{_MODEL}.lora_rank", f"{_MODEL}.lora.rank") if reading.count(key) > 0]
    reading.leave_out(*ranks, note="adapters are not translated")


def _translate_batch(reading: Reading) -> int:
    """Prompts and group; returns the updates that are made with what one version sampled."""
    prompts, group = reading.count(_MINI_BATCH), reading.count(f"{_ROLLOUT}.n")
    least = 1 if reading.word(_ESTIMATOR) == "gae" else 2
    if prompts < 1 or group < least:
        what = f"{prompts} prompts in groups of {group} are no batch with {_ESTIMATOR}={reading.word(_ESTIMATOR)}"
        raise DataError(what, where=reading.origin, remedy=f"give {_MINI_BATCH} above 0 and {_ROLLOUT}.n of {least} or more")
    reading.translate("batch.prompts", prompts, _MINI_BATCH, note="prompts of one update")
    reading.translate("batch.group", group, f"{_ROLLOUT}.n")
    if (epochs := reading.count(f"{_ACTOR}.ppo_epochs")) > 1:
        reading.leave_out(f"{_ACTOR}.ppo_epochs", note=f"here a completion is trained on once, not {epochs} times")
    if _is_fully_async(reading):
        reading.pass_over("data.train_batch_size", note="not read by the fully asynchronous trainer")
        return reading.count("async_training.trigger_parameter_sync_step")
    generated = reading.count("data.train_batch_size")
    if generated < prompts or generated % prompts:
        what = f"what one version samples ({generated} prompts) is no multiple of an update's {prompts}"
        raise DataError(what, where=reading.origin, remedy=f"mend data.train_batch_size or {_MINI_BATCH}")
    return generated // prompts


def _is_fully_async(reading: Reading) -> bool:
    return any(key.startswith("async_training.") for key in reading.given)


def _translate_schedule(reading: Reading, updates: int) -> None:
    """When weights are pushed, and how old a completion may be, counted in updates."""
    mode = reading.word(f"{_V1}.trainer_mode")
    if _is_fully_async(reading):
        share = reading.number("async_training.staleness_threshold")
        keys = ("async_training.staleness_threshold", "async_training.trigger_parameter_sync_step")
        note = "theirs bounds work in flight, which does not bound age; weights are pushed after every update here"
        reading.translate("pipeline.schedule", {"type": "pipeline_rl"}, *keys)
        reading.translate("pipeline.k", math.ceil(round(updates * (1.0 + share), 9)) - 1, *keys, note=note)
    elif mode == "sync":
        schedule = "pipeline_rl" if updates == 1 else "ppo_off_policy"
        keys = ("data.train_batch_size", _MINI_BATCH)
        reading.translate("pipeline.schedule", {"type": schedule}, f"{_V1}.trainer_mode", *keys)
        reading.translate("pipeline.k", 0 if updates == 1 else updates, *keys, note="updates with what one version sampled; 0: synchronous")
    elif mode in ("colocate_async", "separate_async"):
        _translate_sampler(reading, updates)
    else:
        raise reading.unfit(f"{_V1}.trainer_mode", ["sync", "colocate_async", "separate_async"])


def _translate_sampler(reading: Reading, updates: int) -> None:
    """Asynchronous modes: a threshold of t versions, each of which lasts for `updates`, is an age of t x updates - 1 at most."""
    threshold, strategy = f"{_V1}.sampler.max_off_policy_threshold", f"{_V1}.sampler.max_off_policy_strategy"
    note = f"weights are pushed after every update here, there after {updates}" if updates > 1 else ""
    reading.translate("pipeline.schedule", {"type": "pipeline_rl"}, f"{_V1}.trainer_mode", "data.train_batch_size", _MINI_BATCH, note=note)
    if reading.value(threshold) is None:
        raise DataError("age is not bounded", where=f"{reading.origin}: {threshold}", remedy="give a number: a recipe bounds it")
    reading.translate("pipeline.k", reading.count(threshold) * updates - 1, threshold, note="theirs counts versions spanned")
    on_stale = {"drop": "drop", "wait": "hold"}.get(reading.word(strategy))
    if on_stale is None:
        raise reading.unfit(strategy, ["drop", "wait"])
    reading.translate("pipeline.on_stale", on_stale, strategy)
    reading.pass_over(_SYNC_STEP, note="the quotient of the two batch sizes")


def _translate_loss(reading: Reading, updates: int) -> None:
    level, loss_type = f"{_CORRECTION}.rollout_is", f"{_CORRECTION}.loss_type"
    corrected, bypassed = reading.value(level) is not None, reading.flag(f"{_CORRECTION}.bypass_mode")
    if bypassed and reading.word(loss_type) == "reinforce":
        _translate_reinforce(reading, loss_type)
    elif corrected and not bypassed and updates == 1:
        # The proximal ratio is 1 then: only the correction is left.
        _translate_correction(reading)
        reading.pass_over(_LOSS_MODE, *_CLIPS, note="its ratio is 1: nothing is clipped")
    else:
        if bypassed:
            reading.pass_over(level, f"{level}_threshold", note="its weights are not applied where the loss has a ratio to the sampler")
        elif corrected:
            reading.leave_out(level, note="the loss's own ratio is taken to the sampler here")
        _translate_mode(reading)
    if reading.value(f"{_CORRECTION}.rollout_rs") is not None:
        reading.leave_out(f"{_CORRECTION}.rollout_rs", f"{_CORRECTION}.rollout_rs_threshold", note="no rejection by divergence")
    reading.pass_over(f"{_CORRECTION}.bypass_mode", note="the ratio is taken to the sampler here, always")


def _translate_reinforce(reading: Reading, loss_type: str) -> None:
    """Plain policy gradient, weighted if `rollout_is` asks for it."""
    note = "their v1 trainer goes by loss_mode instead (workers/utils/losses.py:101)"
    if reading.value(f"{_CORRECTION}.rollout_is") is not None:
        _translate_correction(reading, loss_type, note=f"absolute ratios; {note}")
    else:
        reading.translate("objective.loss", {"type": "reinforce"}, loss_type, note=note)
    reading.pass_over(_LOSS_MODE, *_CLIPS, note="not read with loss_type=reinforce")


def _translate_correction(reading: Reading, *keys: str, note: str = "absolute ratios") -> None:
    """Truncated, or with two bounds masked, importance sampling; their thresholds are absolute ratios (rollout_corr_helper.py:93)."""
    level, threshold = f"{_CORRECTION}.rollout_is", f"{_CORRECTION}.rollout_is_threshold"
    if reading.word(level) not in ("token", "sequence"):
        raise reading.unfit(level, ["token", "sequence"])
    bounds = str(reading.value(threshold)).split("_")
    try:
        numbers = [float(bound) for bound in bounds]
    except ValueError:
        raise reading.unfit(threshold, ["a number", "LOW_HIGH"]) from None
    loss: dict[str, Any] = {"type": "truncated", "level": reading.word(level), "cap": numbers[-1]}
    if len(numbers) > 1:
        loss = {"type": "masked", "level": reading.word(level), "low": numbers[0], "high": numbers[1]}
    reading.translate("objective.loss", loss, *keys, level, threshold, note=note)


def _translate_mode(reading: Reading) -> None:
    mode = reading.word(_LOSS_MODE)
    if mode == "vanilla":
        _translate_vanilla(reading)
    elif mode == "gspo":
        (low, high), keys = _offsets(reading)
        reading.translate("objective.loss", {"type": "gspo", "clip_low": low, "clip_high": high}, _LOSS_MODE, *keys, note="offsets")
    elif mode == "cispo":
        _translate_cispo(reading)
    elif mode == "gpg":
        reading.translate("objective.loss", {"type": "reinforce"}, _LOSS_MODE)
        reading.pass_over(_CLIP, _LOW, _HIGH, note="not read with loss_mode=gpg")
    else:
        raise reading.unfit(_LOSS_MODE, _LOSS_MODES)
    if mode != "vanilla":
        reading.pass_over(_DUAL_CLIP, note=f"not read with loss_mode={mode}")


def _offsets(reading: Reading) -> tuple[tuple[float, float], tuple[str, str]]:
    """The lower and the upper clip offset, and the keys that say them: clip_ratio where their own are null."""
    low, high = (_CLIP if reading.value(key) is None else key for key in (_LOW, _HIGH))
    reading.pass_over(*(key for key in (_LOW, _HIGH) if key not in (low, high)), note="null: clip_ratio says it")
    if _CLIP not in (low, high):
        reading.pass_over(_CLIP, note="not read: clip_ratio_low and clip_ratio_high are set by default")
    return (reading.number(low), reading.number(high)), (low, high)


def _translate_vanilla(reading: Reading) -> None:
    (low, high), keys = _offsets(reading)
    bounds = {"type": "ppo", "clip": low} if low == high else {"type": "dapo", "clip_low": low, "clip_high": high}
    loss = {**bounds, "dual_clip": reading.number(_DUAL_CLIP)}
    note = "clip_ratio_* are offsets, clip_ratio_c an absolute ratio"
    reading.translate("objective.loss", loss, _LOSS_MODE, *keys, _DUAL_CLIP, note=note)


def _translate_cispo(reading: Reading) -> None:
    (low, high), (low_key, high_key) = _offsets(reading)
    notes = [f"theirs is an offset: 1 + {high:g}"]
    if low < 1.0:
        raised = f"there a weight below {1.0 - low:g} is raised to it; here nothing bounds it from below"
        if low_key == high_key:
            notes.append(raised)
        else:
            reading.leave_out(low_key, note=raised)
    reading.translate("objective.loss", {"type": "cispo", "cap": 1.0 + high}, _LOSS_MODE, high_key, note="; ".join(notes))


def _translate_aggregation(reading: Reading) -> None:
    mode, factor = f"{_ACTOR}.loss_agg_mode", f"{_ACTOR}.loss_scale_factor"
    name = reading.word(mode)
    if name == "token-mean":
        reading.translate("objective.aggregation", {"type": "token"}, mode)
    elif name == "seq-mean-token-mean":
        reading.translate("objective.aggregation", {"type": "sample"}, mode)
    elif name == "seq-mean-token-sum":
        reading.translate("objective.aggregation", {"type": "constant", "tokens": 1}, mode)
    elif name == "seq-mean-token-sum-norm":
        key = "data.max_response_length" if reading.value(factor) is None else factor
        reading.translate("objective.aggregation", {"type": "constant", "tokens": reading.count(key)}, mode, key)
    else:
        raise reading.unfit(mode, ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"])


def _translate_advantage(reading: Reading) -> None:
    by_std, name = "algorithm.norm_adv_by_std_in_grpo", reading.word(_ESTIMATOR)
    if name == "gae":
        _translate_critic(reading)
    elif name in ("grpo", "grpo_vectorized"):
        scale = "group" if reading.flag(by_std) else "none"
        note = "ddof 0; there ddof 1, plus 1e-6" if scale == "group" else ""
        reading.translate("objective.advantage", {"type": "centred", "scale": scale}, _ESTIMATOR, by_std, note=note)
    elif name in ("rloo", "rloo_vectorized"):
        reading.translate("objective.advantage", {"type": "leave_one_out", "scale": "none"}, _ESTIMATOR)
    elif name == "reinforce_plus_plus_baseline":
        note = "there whitened over tokens, not over completions"
        reading.translate("objective.advantage", {"type": "centred", "scale": "batch"}, _ESTIMATOR, note=note)
    else:
        raise reading.unfit(_ESTIMATOR, _ESTIMATORS)
    if name != "gae":
        unread = (key for key in reading.given if key.startswith("critic."))
        reading.pass_over("algorithm.gamma", "algorithm.lam", "trainer.critic_warmup", *unread, note=f"not read with {name}")
    _translate_curriculum(reading)


def _translate_critic(reading: Reading) -> None:
    """GAE over a value network; its rate is a factor of the policy's here."""
    discount, decay, clip, rate = "algorithm.gamma", "algorithm.lam", "critic.cliprange_value", "critic.optim.lr"
    # Left open it is the actor's, by interpolation.
    is_open = reading.value("critic.ppo_epochs") == reading.defaults["critic.ppo_epochs"]
    epochs = f"{_ACTOR}.ppo_epochs" if is_open else "critic.ppo_epochs"
    if (policy_rate := reading.number(f"{_OPTIM}.lr")) <= 0.0:
        raise DataError("nothing is learnt at this rate", where=f"{reading.origin}: {_OPTIM}.lr", remedy="give a rate above 0")
    critic = {
        "type": "critic",
        "scale": "batch",
        "discount": reading.number(discount),
        "decay": reading.number(decay),
        "value_clip": reading.number(clip),
        "passes": reading.count(epochs),
        # 1e-5 / 1e-6 is not 10.
        "learning_rate_factor": float(f"{reading.number(rate) / policy_rate:.12g}"),
    }
    note = "there whitening also subtracts the mean"
    reading.translate("objective.advantage", critic, _ESTIMATOR, discount, decay, clip, rate, epochs, note=note)
    if is_open:
        reading.pass_over("critic.ppo_epochs", note="the actor's")


def _translate_curriculum(reading: Reading) -> None:
    reading.translate("curriculum.selector", {"type": "uniform"}, note="every prompt once an epoch")
    if reading.flag("algorithm.filter_groups.enable"):
        item = {"type": "zero_variance", "refill": True}
        reading.add("curriculum.filters", item, "algorithm.filter_groups.enable", note="dynamic sampling")
        if reading.word("algorithm.filter_groups.metric") != "reward":
            reading.leave_out("algorithm.filter_groups.metric", note="here the rewards themselves tell")


def _translate_terms(reading: Reading) -> None:
    kind, coefficient = f"{_ACTOR}.kl_loss_type", f"{_ACTOR}.kl_loss_coef"
    if reading.flag(f"{_ACTOR}.use_kl_loss") and (weight := reading.number(coefficient)):
        if reading.word(kind) not in _KL_ESTIMATORS:
            raise reading.unfit(kind, _KL_ESTIMATORS)
        term = {"type": "kl", "coefficient": weight, "estimator": _KL_ESTIMATORS[reading.word(kind)]}
        reading.add("objective.terms", term, f"{_ACTOR}.use_kl_loss", coefficient, kind)
    if reading.flag("algorithm.use_kl_in_reward"):
        reading.leave_out("algorithm.use_kl_in_reward", "algorithm.kl_ctrl.kl_coef", note="a reward is the grader's alone here")
    if entropy := reading.number(f"{_ACTOR}.entropy_coeff"):
        reading.add("objective.terms", {"type": "entropy", "coefficient": entropy}, f"{_ACTOR}.entropy_coeff")


def _translate_lengths(reading: Reading) -> None:
    limit = reading.count("data.max_response_length")
    reading.translate("length.prompt_tokens", reading.count("data.max_prompt_length"), "data.max_prompt_length")
    reading.translate("length.completion_tokens", limit, "data.max_response_length")
    reading.translate("engine.temperature", reading.number(f"{_ROLLOUT}.temperature"), f"{_ROLLOUT}.temperature")
    # The DAPO reward manager's, and where launch scripts of before 0.9 put it.
    for buffer in ("reward.reward_kwargs.overlong_buffer_cfg", "reward_model.overlong_buffer"):
        if f"{buffer}.enable" in reading.given and reading.flag(f"{buffer}.enable"):
            control = {"type": "penalty", "limit_tokens": limit, "margin_tokens": reading.count(f"{buffer}.len")}
            note = "here correct completions pay, there all do"
            reading.translate("length.control", control, f"{buffer}.enable", f"{buffer}.len", note=note)
            if f"{buffer}.penalty_factor" in reading.given and reading.number(f"{buffer}.penalty_factor") != 1.0:
                reading.leave_out(f"{buffer}.penalty_factor", note="the penalty at the limit is 1 here")
            return
    reading.translate("length.control", {"type": "truncation"}, note="a completion ends with its budget")


def _translate_optimizer(reading: Reading, updates: int) -> None:
    reading.translate("trainer.optimizer.learning_rate", reading.number(f"{_OPTIM}.lr"), f"{_OPTIM}.lr")
    reading.translate("trainer.optimizer.betas", _betas(reading), f"{_OPTIM}.betas")
    extra = reading.value(f"{_OPTIM}.override_optimizer_config") or {}
    reading.translate("trainer.optimizer.eps", 1e-8, note="torch's default")
    if extra:
        reading.leave_out(f"{_OPTIM}.override_optimizer_config", note="set trainer.optimizer by hand")
    reading.translate("trainer.optimizer.weight_decay", reading.number(f"{_OPTIM}.weight_decay"), f"{_OPTIM}.weight_decay")
    reading.translate("trainer.optimizer.clip_norm", reading.number(f"{_OPTIM}.clip_grad"), f"{_OPTIM}.clip_grad")
    reading.pass_over(f"{_ACTOR}.grad_clip", note="optim.clip_grad decides")
    if reading.word(f"{_OPTIM}.optimizer") != "AdamW":
        reading.leave_out(f"{_OPTIM}.optimizer", note="the optimizer is AdamW")
    if reading.word(f"{_OPTIM}.lr_scheduler_type") != "constant":
        reading.leave_out(f"{_OPTIM}.lr_scheduler_type", note="the rate is constant after the warm-up here")
    _translate_warmup(reading, updates)


def _betas(reading: Reading) -> list[float]:
    value = reading.value(f"{_OPTIM}.betas")
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(beta, (int, float)) for beta in value):
        raise DataError(f"{value!r} is no pair of numbers", where=f"{reading.origin}: {_OPTIM}.betas", remedy="give two numbers")
    return [float(beta) for beta in value]


def _translate_warmup(reading: Reading, updates: int) -> None:
    """Warm-up in updates: one round's updates share a rate, but for the mode that counts each."""
    steps_key, ratio_key = f"{_OPTIM}.lr_warmup_steps", f"{_OPTIM}.lr_warmup_steps_ratio"
    mode = reading.word(f"{_V1}.trainer_mode")
    factor = 1 if mode == "separate_async" or _is_fully_async(reading) else updates
    path, ratio = "trainer.optimizer.warmup_steps", reading.number(ratio_key)
    if (steps := reading.count(steps_key)) > 0:
        reading.translate(path, steps * factor, steps_key, note=f"x {factor} updates" if factor > 1 else "")
        reading.pass_over(ratio_key, note="lr_warmup_steps decides")
        return
    reading.pass_over(steps_key, note="lr_warmup_steps_ratio decides")
    if not ratio or reading.value("trainer.total_training_steps") is not None:
        rounds = reading.count("trainer.total_training_steps") if ratio else 0
        reading.translate(path, int(ratio * rounds) * updates, ratio_key)
    else:
        reading.translate(path, 0)
        reading.leave_out(ratio_key, note=f"a share of steps that the file does not count: set {path}")


def _translate_bookkeeping(reading: Reading, updates: int) -> None:
    note = f"x {updates} updates of a round" if updates > 1 else ""
    if reading.value("trainer.total_training_steps") is not None:
        steps = reading.count("trainer.total_training_steps")
        reading.translate("budget.steps", steps * updates, "trainer.total_training_steps", note=note)
        reading.pass_over("trainer.total_epochs", note="total_training_steps decides")
    else:
        reading.leave_out("trainer.total_epochs", note="how many steps that is depends on the data: set budget.steps")
    for path, key in (("evaluation.every_steps", "trainer.test_freq"), ("checkpoints.every_steps", "trainer.save_freq")):
        if (every := reading.count(key)) > 0:
            reading.translate(path, every * updates, key, note=note)
        else:
            reading.pass_over(key, note="never; the scale or its default decides")
    reading.translate("evaluation.samples", reading.count(f"{_ROLLOUT}.val_kwargs.n"), f"{_ROLLOUT}.val_kwargs.n")
    evaluated, sampled = f"{_ROLLOUT}.val_kwargs.temperature", f"{_ROLLOUT}.temperature"
    if reading.number(evaluated) != reading.number(sampled):
        reading.leave_out(evaluated, note="evaluation samples as training does")
    if reading.value("trainer.max_actor_ckpt_to_keep") is not None:
        reading.translate("checkpoints.keep_last", reading.count("trainer.max_actor_ckpt_to_keep"), "trainer.max_actor_ckpt_to_keep")
    seed = "data.seed" if reading.value("data.seed") is not None else f"{_ACTOR}.data_loader_seed"
    reading.translate("seed", reading.count(seed), seed)
