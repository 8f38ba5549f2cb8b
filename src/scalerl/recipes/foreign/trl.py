"""A GRPOConfig of TRL 1.16.0 (with transformers' TrainingArguments) as a recipe.

    scalerl recipe from-trl config.yaml --processes 8 > mine.toml

Where the two differ, by file and line of the TRL 1.16.0 sources:

* `epsilon` and `epsilon_high` are offsets: the ratio is clipped to [1 - epsilon, 1 + epsilon_high] (grpo_trainer.py:3113). With
  loss_type=cispo epsilon_high is the ABSOLUTE cap and epsilon is not read (grpo_trainer.py:3110). Left open, epsilon_high is
  epsilon (grpo_trainer.py:946), so that CISPO has a cap of .2 by default.
* `delta` is an absolute ratio as well (grpo_trainer.py:3116): the dual clip of PPO.
* Their ratio is taken to log-probs that the trainer recomputed, or is 1 where one batch makes one update (grpo_trainer.py:3066);
  here it is taken to the sampler's.
* The std of `scale_rewards` is the sample's, plus 1e-4 (grpo_trainer.py:2770, 2787); here the population's. That of a batch is
  the std of the raw rewards (grpo_trainer.py:2777), here that of the rewards less their group's mean.
* Completions that `mask_truncated_completions` masks stay in the means over completions of loss_type=grpo and dr_grpo
  (grpo_trainer.py:3153, 3163); here a completion without tokens is in no denominator.
* `beta` adds rho k3 by default (grpo_trainer.py:3104), which is differentiated through rho as well: the gradient of k2, times rho.
* Completions, not prompts, are counted: per_device_train_batch_size x processes x gradient_accumulation_steps of them make one
  update, and `steps_per_generation` / `gradient_accumulation_steps` updates use what one version sampled (grpo_config.py:1100).
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from scalerl.core.errors import DataError, UsageError
from scalerl.recipes.foreign.files import settings_of
from scalerl.recipes.foreign.reading import Reading, Translation, defaults_of

RELEASE = "trl-1.16.0"
LIBRARY = "TRL 1.16.0"

_AGGREGATIONS = {"grpo": "sample", "bnpo": "token", "dapo": "token", "cispo": "token", "dr_grpo": "constant"}
"""By loss_type: what per-token values are divided by (grpo_trainer.py:3153-3175)."""

_STDS = {
    "group": "ddof 0; there ddof 1, plus 1e-4",
    "batch": "std of the rewards less their group's mean, ddof 0; there of the raw rewards, ddof 1, plus 1e-4",
    "none": "",
}
"""By scale_rewards: how their divisor differs."""

_CORRECTED_KL = {
    "token": "the gradient of their rho k3 is that of k2 times rho; here it is not weighted by rho",
    "sequence": "the gradient of their s_i k3, summed over a completion, is that of k2 times s_i; here it is not weighted by s_i",
}
"""By importance_sampling_level: what use_bias_correction_kl makes of the term."""

_HOW_IT_RUNS = re.compile(
    r"^(log_|logging_|report_to|run_name|project$|trackio_|hub_|push_to_hub|save_|output_dir|overwrite_output_dir|do_|dataloader_"
    r"|ddp_|fsdp|deepspeed|accelerator_config|parallelism_config|torch_compile|torch_empty_cache|use_liger|liger_|gradient_checkpoint"
    r"|activation_checkpoint|tf32|bf16_full_eval|fp16_full_eval|use_cpu|use_cache|cache_implementation|local_rank|disable_tqdm|debug"
    r"|skip_memory_metrics|resume_from_checkpoint|restore_callback|enable_jit_checkpoint|ignore_data_skip|include_|eval_accumulation"
    r"|eval_do_concat|eval_use_gather|eval_on_start|eval_delay|batch_eval|per_device_eval|prediction_loss_only|label_names"
    r"|remove_unused_columns|length_column_name|ds3_|pad_to_multiple_of|num_completions_to_print|vllm_(?!structured|importance)|use_vllm"
    r"|use_transformers_|transformers_continuous|average_tokens_across_devices|full_determinism|auto_find_batch_size)"
)

_HINTS = {
    "max_staleness": "a setting of AsyncGRPOConfig, which is not translated: set pipeline.k to it and pipeline.on_stale to drop",
    "model_name_or_path": "set model to {type = 'checkpoint', path = ...}",
    "dataset_name": "set task: the prompts and who grades them",
    "reward_funcs": "set task.graded_by: reward functions are code",
    "reward_weights": "a task has one grader",
    **dict.fromkeys(("top_p", "top_k", "min_p", "repetition_penalty"), "a ratio to log-probs of a cut distribution would be wrong"),
    "trust_remote_code": "never taken over: set model.trust_remote_code yourself",
    "use_peft": "adapters are not translated",
}


def from_trl(path: str | Path, *, processes: int | None = None) -> Translation:
    """The recipe of a GRPOConfig as JSON or YAML.

    Args:
        path: the file, as `json.dumps(config.to_dict())` or a trainer's YAML has it.
        processes: how many train, which the file does not say unless it is a dump; 1 if nothing tells.

    Raises:
        UsageError: there is no such file.
        DataError: it is no configuration, or asks for a loss that has no counterpart.
    """
    file = Path(path)
    reading = Reading(settings_of(file, nested=False), defaults_of(RELEASE), origin=file.name)
    _translate_model(reading)
    _translate_batch(reading, processes)
    _translate_loss(reading)
    _translate_advantage(reading)
    _translate_terms(reading)
    _translate_sampling(reading)
    _translate_optimizer(reading)
    _translate_bookkeeping(reading)
    return reading.finish(file.stem, library=LIBRARY, how_it_runs=_HOW_IT_RUNS, hints=_HINTS)


def _translate_model(reading: Reading) -> None:
    if "model_name_or_path" in reading.given:
        reading.translate("model.type", "checkpoint")
        reading.translate("model.path", reading.word("model_name_or_path"), "model_name_or_path")
    head = "fp32" if reading.flag("cast_lm_head_to_fp32") else "body"
    reading.translate("model.head", head, "cast_lm_head_to_fp32", note="on both sides; there vLLM keeps its own")
    if reading.flag("fp16"):
        reading.leave_out("fp16", note="the body is float32 or bfloat16")
    elif reading.value("bf16") is not False:
        reading.translate("model.dtype", "bfloat16", "bf16", note="with fp32 weights in the optimizer; on unless it or fp16 is set")
    else:
        reading.translate("model.dtype", "float32", "bf16")


def _translate_batch(reading: Reading, processes: int | None) -> None:
    """Prompts and group, and how many updates are made with what one version sampled."""
    per_device, accumulated = reading.count("per_device_train_batch_size"), reading.count("gradient_accumulation_steps")
    group = reading.count("num_generations")
    if min(per_device, accumulated, group - 1) < 1:
        what = f"{per_device} completions x {accumulated} accumulated in groups of {group} are no batch"
        raise DataError(what, where=reading.origin, remedy="give groups of 2 or more and numbers above 0")
    if processes is None:
        processes = _processes(reading, per_device)
    if processes < 1:
        raise UsageError(f"{processes} processes cannot train", where="--processes", remedy="give 1 or more")
    completions = per_device * processes * accumulated
    if completions % group:
        what = f"one update takes {completions} completions, which are no whole groups of {group}"
        raise DataError(what, where=reading.origin, remedy="say with --processes how many train")
    note = f"{per_device} completions x {processes} processes x {accumulated} accumulated, in groups of {group}"
    reading.translate("batch.prompts", completions // group, "per_device_train_batch_size", "gradient_accumulation_steps", note=note)
    reading.translate("batch.group", group, "num_generations")
    updates = _updates(reading, per_device * processes, accumulated)
    keys = [key for key in ("steps_per_generation", "generation_batch_size") if reading.value(key) is not None]
    if updates > 1:
        reading.translate("pipeline.schedule", {"type": "ppo_off_policy"}, *keys)
        reading.translate("pipeline.k", updates, *keys, note="updates with what one version sampled")
    else:
        reading.translate("pipeline.schedule", {"type": "pipeline_rl"}, *keys)
        reading.translate("pipeline.k", 0, *keys, note="synchronous")
    if reading.count("num_iterations") > 1:
        reading.leave_out("num_iterations", note="here a completion is trained on once")


def _processes(reading: Reading, per_device: int) -> int:
    """How many processes a dump was made for: it holds both of what a file may state one of."""
    if reading.value("generation_batch_size") is None or reading.value("steps_per_generation") is None:
        return 1
    return max(reading.count("generation_batch_size") // (per_device * reading.count("steps_per_generation")), 1)


def _updates(reading: Reading, completions: int, accumulated: int) -> int:
    """Updates per generated batch; where one update takes several batches they are of one version, as there."""
    if reading.value("steps_per_generation") is not None:
        steps = reading.count("steps_per_generation")
    elif reading.value("generation_batch_size") is not None:
        steps = reading.count("generation_batch_size") // completions
    else:
        steps = accumulated
    if steps > accumulated and steps % accumulated:
        what = f"what one version samples lasts for {steps} / {accumulated} updates, which is no whole number"
        raise DataError(what, where=reading.origin, remedy="make steps_per_generation a multiple of gradient_accumulation_steps")
    return max(steps // accumulated, 1)


def _translate_loss(reading: Reading) -> None:
    kind = reading.word("loss_type")
    if kind not in _AGGREGATIONS:
        raise reading.unfit("loss_type", _AGGREGATIONS)
    if kind == "cispo":
        _translate_cispo(reading)
    elif (level := reading.word("importance_sampling_level")) == "sequence":
        _translate_gspo(reading)
    elif level != "token":
        raise reading.unfit("importance_sampling_level", ["token", "sequence"])
    else:
        _translate_clipped(reading, kind)
    _translate_aggregation(reading, kind)
    reading.pass_over(*(key for key in reading.given if key.startswith(("sapo_", "vespo_"))), note=f"not read with loss_type={kind}")
    _correct_for_vllm(reading)


def _correct_for_vllm(reading: Reading) -> None:
    keys = [f"vllm_importance_sampling_{part}" for part in ("correction", "mode", "clip_max", "clip_min", "cap")]
    if not reading.flag("use_vllm"):
        reading.pass_over(*keys, note="use_vllm is false")
    elif reading.flag(keys[0]):
        note = "a second ratio that corrects for the sampler; here the loss's own is taken to the sampler"
        reading.leave_out(*keys[:3], *(key for key in keys[3:] if key in reading.given), note=note)


def _high(reading: Reading) -> tuple[float, str]:
    """The upper bound and the key that says it: epsilon where epsilon_high is open."""
    key = "epsilon" if reading.value("epsilon_high") is None else "epsilon_high"
    return reading.number(key), key


def _translate_cispo(reading: Reading) -> None:
    if reading.word("importance_sampling_level") != "token":
        raise reading.unfit("importance_sampling_level", ["token (with loss_type=cispo)"])
    cap, key = _high(reading)
    reading.translate("objective.loss", {"type": "cispo", "cap": cap}, "loss_type", key, note="an absolute ratio there as well")
    reading.pass_over(*(other for other in ("epsilon", "delta") if other != key), note="not read with loss_type=cispo")


def _translate_gspo(reading: Reading) -> None:
    low, (high, key) = reading.number("epsilon"), _high(reading)
    loss = {"type": "gspo", "clip_low": low, "clip_high": high}
    reading.translate("objective.loss", loss, "loss_type", "importance_sampling_level", "epsilon", key, note="offsets")
    if reading.value("delta") is not None:
        reading.leave_out("delta", note="gspo has no second bound")


def _translate_clipped(reading: Reading, kind: str) -> None:
    low, (high, key) = reading.number("epsilon"), _high(reading)
    keys = ("loss_type", "epsilon", key)
    delta = None if reading.value("delta") is None else reading.number("delta")
    if delta is not None and delta > 1.0 + high:
        bounds = {"type": "ppo", "clip": low} if low == high else {"type": "dapo", "clip_low": low, "clip_high": high}
        note = "epsilon is an offset, delta an absolute ratio"
        reading.translate("objective.loss", {**bounds, "dual_clip": delta}, *keys, "delta", note=note)
        return
    if low != high or kind == "dapo":
        reading.translate("objective.loss", {"type": "dapo", "clip_low": low, "clip_high": high}, *keys, note="offsets")
    else:
        reading.translate("objective.loss", {"type": "dr_grpo" if kind == "dr_grpo" else "grpo", "clip": low}, *keys, note="an offset")
    if delta is not None:
        reading.leave_out("delta", note="a dual clip lies beyond the offsets")


def _translate_aggregation(reading: Reading, kind: str) -> None:
    name = _AGGREGATIONS[kind]
    if name == "constant":
        tokens = reading.count("max_completion_length")
        reading.translate("objective.aggregation", {"type": name, "tokens": tokens}, "loss_type", "max_completion_length")
    else:
        note = "there of each micro-batch, here of the whole batch" if kind == "bnpo" else ""
        reading.translate("objective.aggregation", {"type": name}, "loss_type", note=note)


def _translate_advantage(reading: Reading) -> None:
    stated = reading.value("scale_rewards")
    # GRPOConfig reads booleans as these (grpo_config.py:1078).
    scale = {True: "group", False: "none"}.get(stated, stated) if isinstance(stated, bool) else reading.word("scale_rewards")
    if scale not in _STDS:
        raise reading.unfit("scale_rewards", _STDS)
    reading.translate("objective.advantage", {"type": "centred", "scale": scale}, "scale_rewards", note=_STDS[scale])
    reading.translate("curriculum.selector", {"type": "uniform"}, note="every prompt once an epoch")
    if reading.flag("mask_truncated_completions"):
        counted = _AGGREGATIONS[reading.word("loss_type")] in ("sample", "constant")
        note = "masked completions leave the mean over completions; there they stay in its count" if counted else ""
        reading.add("curriculum.filters", {"type": "overlong"}, "mask_truncated_completions", note=note)


def _translate_terms(reading: Reading) -> None:
    if beta := reading.number("beta"):
        corrected = reading.flag("use_bias_correction_kl")
        term = {"type": "kl", "coefficient": beta, "estimator": "k2" if corrected else "k3"}
        note = _CORRECTED_KL[reading.word("importance_sampling_level")] if corrected else ""
        reading.add("objective.terms", term, "beta", "use_bias_correction_kl", note=note)
        if reading.flag("sync_ref_model"):
            reading.leave_out("sync_ref_model", note="the reference is the first policy, always")
    reading.pass_over_below("use_bias_correction_kl", switch="beta")
    reading.pass_over_below("sync_ref_model", switch="beta")
    reading.pass_over_below("ref_model_", switch="sync_ref_model")
    if reading.flag("use_adaptive_entropy"):
        reading.leave_out("use_adaptive_entropy", "entropy_coef", note="a coefficient stands for the whole run")
    elif entropy := reading.number("entropy_coef"):
        reading.add("objective.terms", {"type": "entropy", "coefficient": entropy}, "entropy_coef", note="summed as the loss is")
    for prefix in ("entropy_coef_", "entropy_target"):
        reading.pass_over_below(prefix, switch="use_adaptive_entropy")


def _translate_sampling(reading: Reading) -> None:
    reading.translate("engine.temperature", reading.number("temperature"), "temperature")
    reading.translate("length.completion_tokens", reading.count("max_completion_length"), "max_completion_length")
    reading.translate("length.control", {"type": "truncation"}, note="a completion ends with its budget")


def _translate_optimizer(reading: Reading) -> None:
    reading.translate("trainer.optimizer.learning_rate", reading.number("learning_rate"), "learning_rate")
    reading.translate("trainer.optimizer.betas", [reading.number("adam_beta1"), reading.number("adam_beta2")], "adam_beta1", "adam_beta2")
    reading.translate("trainer.optimizer.eps", reading.number("adam_epsilon"), "adam_epsilon")
    reading.translate("trainer.optimizer.weight_decay", reading.number("weight_decay"), "weight_decay")
    if norm := reading.number("max_grad_norm"):
        reading.translate("trainer.optimizer.clip_norm", norm, "max_grad_norm")
    else:
        reading.leave_out("max_grad_norm", note="gradients are always clipped here")
    if not re.match(r"adamw_(torch|hf|apex)", reading.word("optim")):
        reading.leave_out("optim", note="the optimizer is AdamW")
    _translate_rate(reading)


def _translate_rate(reading: Reading) -> None:
    schedule, warmup = reading.word("lr_scheduler_type"), reading.number("warmup_steps")
    ratio = reading.number("warmup_ratio") if reading.value("warmup_ratio") is not None else 0.0
    steps = reading.count("max_steps")
    keys = ["warmup_steps"] if warmup or not ratio else ["warmup_ratio"]
    reading.pass_over("warmup_ratio" if "warmup_steps" in keys else "warmup_steps", note=f"{keys[0]} decides")
    # Below 1 it is a share of all steps, as warmup_ratio was before transformers 5.
    share = ratio if not warmup else warmup if warmup < 1.0 else 0.0
    if schedule == "constant":
        reading.translate("trainer.optimizer.warmup_steps", 0, "lr_scheduler_type", note="without warm-up, whatever warmup_steps says")
        reading.pass_over(*keys, note="not read with lr_scheduler_type=constant")
        return
    if not share:
        reading.translate("trainer.optimizer.warmup_steps", int(warmup), *keys)
    elif steps > 0:
        reading.translate("trainer.optimizer.warmup_steps", math.ceil(share * steps), *keys, note=f"{share:g} of {steps} steps")
    else:
        reading.translate("trainer.optimizer.warmup_steps", 0)
        reading.leave_out(*keys, note="a share of steps that the file does not count: set trainer.optimizer.warmup_steps")
    if schedule == "constant_with_warmup":
        reading.pass_over("lr_scheduler_type", note="the rate is constant after the warm-up here, always")
    else:
        reading.leave_out("lr_scheduler_type", note="the rate is constant after the warm-up here")


def _translate_bookkeeping(reading: Reading) -> None:
    reading.translate("seed", reading.count("seed"), "seed")
    if (steps := reading.count("max_steps")) > 0:
        reading.translate("budget.steps", steps, "max_steps")
        reading.pass_over("num_train_epochs", note="max_steps decides")
    else:
        reading.leave_out("num_train_epochs", note="how many steps that is depends on the data: set budget.steps")
    if reading.word("eval_strategy") == "steps":
        key = "logging_steps" if reading.value("eval_steps") is None else "eval_steps"
        _translate_interval(reading, "evaluation.every_steps", key)
    else:
        reading.pass_over("eval_steps", note="eval_strategy is not steps")
    if reading.value("num_generations_eval") is not None:
        reading.translate("evaluation.samples", reading.count("num_generations_eval"), "num_generations_eval")
    if reading.word("save_strategy") == "steps":
        _translate_interval(reading, "checkpoints.every_steps", "save_steps")
    if reading.value("save_total_limit") is not None:
        reading.translate("checkpoints.keep_last", reading.count("save_total_limit"), "save_total_limit")


def _translate_interval(reading: Reading, path: str, key: str) -> None:
    """Steps between two of something; below 1 they are a share of all, which only max_steps tells."""
    steps, most = reading.number(key), reading.count("max_steps")
    if steps < 1.0 and most <= 0:
        reading.leave_out(key, note=f"a share of steps that the file does not count: set {path}")
    else:
        reading.translate(path, max(round(steps * most if steps < 1.0 else steps), 1), key)
