"""Logs of the training frameworks, small and by hand, with the keys that they write."""

import pytest

from scalerl.core.units import DEVICE_HOURS, SECONDS, STEPS, TOKENS
from scalerl.importers import Choice, read_curves
from scalerl.importers.tables.vocabulary import FRAMEWORKS, recognise
from tests.importers.logs import jsonl, said

VERL = [
    {"step": 0, "data": {"val-core/math/acc/mean@8": 0.20, "val-core/math/reward/mean@8": -0.6, "val-aux/math/score/mean@8": 0.1}},
    *(
        {
            "step": step,
            "data": {
                "training/global_step": step,
                "critic/score/mean": 0.1 * step,
                "critic/rewards/mean": 0.05 * step,
                "perf/time_per_step": 100.0 + (20.0 if step == 2 else 0.0),
                "timing_s/step": 100.0 + (20.0 if step == 2 else 0.0),
                "perf/total_num_tokens": 8000.0 * step,
                "perf/throughput": 8000.0 * step / (100.0 + (20.0 if step == 2 else 0.0)) / 4,
                **({"timing_s/testing": 15.0, "timing_s/save_checkpoint": 5.0, "val-core/math/acc/mean@8": 0.30} if step == 2 else {}),
            },
        }
        for step in (1, 2, 3)
    ),
]


def test_verl_sums_step_times_without_evaluation_and_checkpoints(tmp_path):
    (curve,) = read_curves(jsonl(tmp_path / "verl.jsonl", VERL))
    assert curve.metric == "val-core/math/acc/mean@8"
    assert curve.reward.tolist() == [0.20, 0.30]
    assert curve.axis == DEVICE_HOURS
    assert curve.compute.tolist() == pytest.approx([0.0, 200 * 4 / 3600])
    assert said(curve.notes, "x 4 GPUs (as verl logs its throughput)")
    assert said(curve.notes, "verl's name for a held-out evaluation", "critic/score/mean")


def test_i5_verl_token_counter_is_of_one_step(tmp_path):
    (curve,) = read_curves(jsonl(tmp_path / "verl.jsonl", VERL), choice=Choice(x="tokens", y="critic/score/mean"))
    assert (curve.axis, curve.compute.tolist()) == (TOKENS, [8000, 24000, 48000])
    (by_column,) = read_curves(jsonl(tmp_path / "verl.jsonl", VERL), choice=Choice(x="perf/total_num_tokens", y="critic/score/mean"))
    assert by_column.compute.tolist() == curve.compute.tolist()


def test_verl_log_of_a_resumed_run_starts_late(tmp_path):
    rows = [{"step": step, "data": {"critic/score/mean": 0.5, "perf/time_per_step": 36.0}} for step in (101, 102, 103)]
    (curve,) = read_curves(jsonl(tmp_path / "verl.jsonl", rows), choice=Choice(gpus=100))
    assert curve.compute.tolist() == pytest.approx([101.0, 102.0, 103.0])
    assert said(curve.notes, "the log starts at step 101")


def test_i5_trl_token_counter_is_a_total(tmp_path):
    rows = [
        {"step": 10, "epoch": 0.5, "loss": 0.0, "reward": 0.20, "rewards/accuracy_reward/mean": 0.15, "num_tokens": 4000},
        {"step": 10, "epoch": 0.5, "eval_reward": 0.25, "eval_runtime": 3.0},
        {"step": 20, "epoch": 1.0, "loss": -0.01, "reward": 0.30, "rewards/accuracy_reward/mean": 0.22, "num_tokens": 9000},
        {"step": 20, "epoch": 1.0, "train_runtime": 61.0, "train_loss": -0.005, "total_flos": 0.0},
    ]
    path = jsonl(tmp_path / "trl.jsonl", rows)
    (evaluation,) = read_curves(path)
    assert (evaluation.axis, evaluation.compute.tolist(), evaluation.reward.tolist()) == (TOKENS, [4000], [0.25])
    (training,) = read_curves(path, choice=Choice(y="reward"))
    assert (training.compute.tolist(), training.reward.tolist()) == ([4000, 9000], [0.20, 0.30])
    (steps,) = read_curves(path, choice=Choice(x="step", y="reward"))
    assert (steps.axis, steps.compute.tolist(), steps.reward.tolist()) == (STEPS, [10, 20], [0.20, 0.30])


def test_prime_rl_takes_the_trainers_step_time_and_evaluates_before_the_step(tmp_path):
    rows = []
    for step in range(4):
        if step % 2 == 0:
            rows.append({"step": step, "eval/aime/all/reward/mean": 0.1 + step / 10, "time": 1.7e9 + 60 * step})
        rows.append({"step": step, "train/agg/all/reward/mean": 0.5, "time/step": 99.0, "progress/tokens": 1000})
        rows.append({"step": step, "time/step": 30.0, "time/forward_backward": 20.0})
    path = jsonl(tmp_path / "prime.jsonl", rows)
    (curve,) = read_curves(path)
    assert (curve.metric, curve.axis) == ("eval/aime/all/reward/mean", SECONDS)
    assert curve.compute.tolist() == [0.0, 60.0]  # the base model, and the weights after steps 0 and 1
    assert curve.reward.tolist() == [0.1, pytest.approx(0.3)]
    (by_tokens,) = read_curves(path, choice=Choice(x="tokens"))
    assert by_tokens.compute.tolist() == [0.0, 2000.0]


def hours(curve):
    """Device-hours as whole seconds of one device, which these logs are made of."""
    assert curve.axis == DEVICE_HOURS
    return (curve.compute * 3600.0).round(6).tolist()


def without(rows, prefix):
    return [{name: cell for name, cell in row.items() if not name.startswith(prefix)} for row in rows]


def framework_of(rows):
    recognised = recognise({name for row in rows for name in row})
    return recognised.name if recognised else None


def test_verl_has_a_curve_of_each_data_source_by_accuracy_or_reward(tmp_path):
    rows = [
        {
            "step": step,
            "data": {f"val-core/{name}/mean@8": step / divisor for name, divisor in SOURCES.items()} | {"perf/time_per_step": 9.0},
        }
        for step in (1, 2, 3)
    ]
    math, gsm8k = read_curves(jsonl(tmp_path / "verl.jsonl", rows), choice=Choice(gpus=1))
    assert (math.name, math.metric, math.reward.tolist(), math.bounds) == ("math", "val-core/math/acc/mean@8", [0.1, 0.2, 0.3], (0, 1))
    assert (gsm8k.name, gsm8k.metric, gsm8k.bounds) == ("openai/gsm8k", "val-core/openai/gsm8k/reward/mean@8", (-1, 1))
    assert hours(math) == hours(gsm8k) == [9.0, 18.0, 27.0]
    assert said(math.notes, "one of 2 data sets", "also there: 'val-core/math/reward/mean@8'")
    (alone,) = read_curves(tmp_path / "verl.jsonl", choice=Choice(y="val-core/math/acc/mean@8"))
    assert alone.name == "verl"


SOURCES = {"math/acc": 10, "math/reward": 9, "openai/gsm8k/reward": -10}


def test_prime_rl_names_the_trainers_gpus_and_leaves_checkpoints_out(tmp_path):
    rows = []
    for step in (0, 1, 2):
        rows += [
            {"step": step, "eval/aime/all/reward/mean": 0.1, "eval/aime/effective/reward/mean": 0.3, "eval/gpqa/all/reward/mean": 0.2},
            {"step": step, "train/agg/all/reward/mean": 0.5, "time/step": 99.0, "time/save_ckpt": 9.0, "progress/tokens": 1000},
            {"step": step, "perf/throughput": 800.0, "perf/throughput_per_gpu": 100.0},
            {"step": step, "time/step": 30.0, "time/save_ckpt": 10.0 * step, "time/forward_backward": 20.0},
        ]
    assert framework_of(rows) == "prime-rl"
    path = jsonl(tmp_path / "prime.jsonl", rows)
    aime, gpqa = read_curves(path)
    assert [(curve.name, curve.reward[0]) for curve in (aime, gpqa)] == [("aime", 0.1), ("gpqa", 0.2)]
    assert (aime.axis, aime.compute.tolist()) == (SECONDS, [0.0, 30.0, 50.0])  # before its step; 10 s of checkpoint in the second
    assert said(aime.notes, "'time/step' - 'time/save_ckpt', in s of wall clock", "of which 8 train")
    assert hours(read_curves(path, choice=Choice(gpus=24))[0]) == [0.0, 30.0 * 24, 50.0 * 24]
    (training,) = read_curves(jsonl(path, without(rows, "eval/")), choice=Choice(x="tokens"))
    assert (training.metric, training.compute.tolist()) == ("train/agg/all/reward/mean", [1000, 2000, 3000])


def test_older_prime_rl(tmp_path):
    rows = [{"step": step, "reward/all/mean": 0.5, "eval/aime/avg@8": step / 10, "progress/tokens": 10} for step in (0, 1, 2)]
    (curve,) = read_curves(jsonl(tmp_path / "prime.jsonl", rows))
    assert (curve.name, curve.metric, curve.compute.tolist()) == ("prime", "eval/aime/avg@8", [0, 10, 20])
    (training,) = read_curves(tmp_path / "prime.jsonl", choice=Choice(y="reward/all/mean"))
    assert said(training.notes, "the TRAINING reward, as asked (also there: 'eval/aime/avg@8')")


def test_trl_on_a_tracker(tmp_path):
    rows = []
    for step in (1, 2, 3):
        rows += [
            {"_step": 2 * step, "train/global_step": step, "train/reward": 0.4, "train/rewards/format/mean": 0.9, "train/step_time": 5.0}
            | {"train/num_tokens": 100 * step},
            {"_step": 2 * step + 1, "train/global_step": step, "eval/math_reward": step / 10, "eval/math_rewards/format/mean": 0.9}
            | {"eval/code_reward": step / 20, "eval/reward_std": 0.3},
        ]
    assert framework_of(rows) == "TRL"
    path = jsonl(tmp_path / "trl.jsonl", rows)
    code, math = read_curves(path, choice=Choice(gpus=2))
    assert (code.name, code.metric, code.reward.tolist()) == ("code", "eval/code_reward", [0.05, 0.1, 0.15])
    assert (math.name, hours(math)) == ("math", [10.0, 20.0, 30.0])
    assert read_curves(path, choice=Choice(x="tokens"))[0].compute.tolist() == [100, 200, 300]
    (training,) = read_curves(jsonl(path, without(rows, "eval/")))
    assert (training.metric, training.compute.tolist()) == ("train/reward", [5.0, 10.0, 15.0])


def test_openrlhf(tmp_path):
    rows = []
    for step in (1, 2, 3):
        rows += [
            {"train/global_step": step, "train/rollout/reward_mean": 0.1, "train/timing/step_total": 7.0}
            | {"train/rollout/num_samples": 8, "train/rollout/response_length_mean": 50.0},
            {"eval/global_step": step, "eval/eval_math_pass1": step / 10, "eval/eval_math_pass8": 0.9, "eval/eval_aime_pass1": 0.1},
        ]
    assert framework_of(rows) == "OpenRLHF"
    path = jsonl(tmp_path / "openrlhf.jsonl", rows)
    aime, math = read_curves(path, choice=Choice(gpus=1))
    assert (aime.name, math.name, math.metric, math.reward.tolist()) == ("aime", "math", "eval/eval_math_pass1", [0.1, 0.2, 0.3])
    assert hours(math) == [7.0, 14.0, 21.0]
    for axis, each in (("tokens", 400), ("rollouts", 8)):
        assert read_curves(path, choice=Choice(x=axis))[0].compute.tolist() == [each, 2 * each, 3 * each]
    (training,) = read_curves(jsonl(path, without(rows, "eval/eval_")))
    assert training.metric == "train/rollout/reward_mean"


def test_areal(tmp_path):
    rows = [
        {"step": step, "rollout/reward": 0.6, "ppo_actor/task_reward/avg": 0.5, "eval-rollout/reward": step / 10}
        | {"timeperf/rollout": 5.0, "timeperf/train_step": 3.0, "timeperf/eval": 90.0, "timeperf/save": 40.0, "timeperf/step": 138.0}
        | {"timeperf/checkpoint_for_recover": 20.0, "ppo_actor/n_seqs": 4.0, "ppo_actor/seq_len/avg": 25.0}
        for step in (1, 2, 3)
    ]
    assert framework_of(rows) == "AReaL"
    path = jsonl(tmp_path / "areal.jsonl", rows)
    (curve,) = read_curves(path, choice=Choice(gpus=1))
    assert (curve.metric, curve.reward.tolist(), hours(curve)) == ("eval-rollout/reward", [0.1, 0.2, 0.3], [8.0, 16.0, 24.0])
    assert read_curves(path, choice=Choice(x="tokens"))[0].compute.tolist() == [100, 200, 300]
    (training,) = read_curves(jsonl(path, without(rows, "eval-")))
    assert (training.metric, training.reward.tolist()) == ("rollout/reward", [0.6] * 3)


def test_slime(tmp_path):
    rows = []
    for step in (0, 1, 2):
        rows += [
            {"rollout/step": step, "rollout/raw_reward": 0.1, "rollout/rewards": 0.0, "perf/tokens_per_gpu_per_sec": 300.0},
            {"rollout/step": step, "perf/step_time": 7.0, "perf/train_wait_time": 4.0},
            {"eval/step": step, "eval/aime": step / 10, "eval/aime-truncated_ratio": 0.2, "eval/aime-pass@16": 0.8, "eval/gpqa": 0.3},
        ]
    assert framework_of(rows) == "slime"
    path = jsonl(tmp_path / "slime.jsonl", rows)
    aime, gpqa = read_curves(path)
    assert [(curve.name, curve.metric) for curve in (aime, gpqa)] == [("aime", "eval/aime"), ("gpqa", "eval/gpqa")]
    assert (aime.axis, aime.compute.tolist(), aime.reward.tolist()) == (SECONDS, [7.0, 14.0, 21.0], [0.0, 0.1, 0.2])
    rows = [{**row, **({"eval/aime-pass@1": 0.4} if "eval/aime" in row else {})} for row in rows]
    assert {curve.metric for curve in read_curves(jsonl(path, rows))} == {"eval/aime-pass@1"}
    (training,) = read_curves(jsonl(path, without(rows, "eval/")))
    assert training.metric == "rollout/raw_reward"


def test_skyrl(tmp_path):
    rows = [
        {"trainer/global_step": step, "reward/avg_raw_reward": 0.1, "trainer/tokens_per_second_per_gpu": 900.0}
        | {"eval/all/avg_score": 0.2, "eval/math/avg_score": step / 10, "eval/math/pass_at_4": 0.6, "eval/code/avg_score": 0.1}
        | {"timing/step": 44.0 if step == 2 else 4.0, "timing/eval": 99.0}
        | ({"timing/save_checkpoints": 30.0, "timing/save_hf_model": 10.0} if step == 2 else {})
        for step in (1, 2, 3)
    ]
    assert framework_of(rows) == "SkyRL"
    path = jsonl(tmp_path / "skyrl.jsonl", rows)
    code, math = read_curves(path, choice=Choice(gpus=1))
    assert (code.name, math.name, math.reward.tolist(), hours(math)) == ("code", "math", [0.1, 0.2, 0.3], [4.0, 8.0, 12.0])
    assert said(math.notes, "also there: 'eval/all/avg_score'")
    (mean,) = read_curves(jsonl(path, without(rows, "eval/code")), choice=Choice(gpus=1))
    assert mean.metric == "eval/all/avg_score"
    (training,) = read_curves(jsonl(path, without(rows, "eval/")))
    assert training.metric == "reward/avg_raw_reward"


def test_nemo_rl_leaves_out_the_validation_that_it_logs_in_a_row_of_its_own(tmp_path):
    rows = []
    for step in (1, 2, 3):
        if step == 2:
            rows += [{"step": 2, "validation/accuracy": 0.3, "validation/pass_8": 0.7}]
            rows += [{"step": 2, "timing/validation/total_validation_time": 500.0}]
        rows += [
            {"step": step, "train/reward": 0.1, "train/total_num_tokens": 1000.0},
            {"step": step, "performance/tokens_per_sec": 1600.0, "performance/tokens_per_sec_per_gpu": 200.0},
            {"step": step, "timing/train/total_step_time": 595.0 if step == 2 else 45.0}
            | ({"timing/train/checkpointing": 50.0} if step == 2 else {}),
        ]
    assert framework_of(rows) == "NeMo-RL"
    path = jsonl(tmp_path / "nemo.jsonl", rows)
    (curve,) = read_curves(path)
    assert (curve.metric, curve.reward.tolist(), hours(curve)) == ("validation/accuracy", [0.3], [90.0 * 8])
    assert said(curve.notes, "x 8 GPUs (as NeMo-RL logs its throughput)")
    assert read_curves(path, choice=Choice(x="tokens"))[0].compute.tolist() == [2000]
    rows = [{name.replace("validation/acc", "validation-aime/acc"): cell for name, cell in row.items()} for row in rows]
    rows += [{"step": 3, "validation-math/accuracy": 0.6}]
    assert [curve.name for curve in read_curves(jsonl(path, rows))] == ["aime", "math"]
    (training,) = read_curves(jsonl(path, without(rows, "validation")))
    assert (training.metric, hours(training)) == ("train/reward", [45.0 * 8, 90.0 * 8, 135.0 * 8])


def test_open_instruct_counts_training_steps_and_calls_training_data_val(tmp_path):
    rows = [
        {"training_step": step, "global_step": 512 * step, "episode": 512 * step, "scores": 0.4, "val/accuracy": 0.9}
        | {"val/num_total_tokens": 5000 * step, "time/total": 36.0 if step == 2 else 6.0, "time/saving": 30.0 if step == 2 else 0.0}
        for step in (1, 2, 3)
    ]
    assert framework_of(rows) == "open-instruct"
    path = jsonl(tmp_path / "open-instruct.jsonl", rows)
    (training,) = read_curves(path)
    assert (training.metric, training.axis, training.compute.tolist()) == ("scores", SECONDS, [6.0, 12.0, 18.0])
    for axis, each in (("tokens", 5000), ("rollouts", 512), ("steps", 1)):
        assert read_curves(path, choice=Choice(x=axis))[0].compute.tolist() == [each, 2 * each, 3 * each]
    (curve,) = read_curves(jsonl(path, [{**row, "eval/pass_at_1": 0.5, "eval/pass_at_8": 0.7, "eval/scores": 5.0} for row in rows]))
    assert curve.metric == "eval/pass_at_1"
    assert not said(curve.notes, "val/accuracy")


def test_tinker_cookbook_counts_tokens_and_evaluates_before_the_step(tmp_path):
    rows = [
        {"step": step, "env/all/reward/total": 0.1, "env/math/reward/total": 0.1, "test/env/all/reward/total": step / 10}
        | {"env/all/total_ac_tokens": 300, "env/all/total_ob_tokens": 100, "time/total": 60.0, "progress/done_frac": 0.1}
        for step in (0, 1, 2)
    ]
    assert framework_of(rows) == "tinker-cookbook"
    path = jsonl(tmp_path / "metrics.jsonl", rows)
    (curve,) = read_curves(path)
    assert (curve.metric, curve.axis, curve.compute.tolist()) == ("test/env/all/reward/total", TOKENS, [0, 400, 800])
    rows = [{**row, "test/env/math/reward/total": 0.2, "test/env/code/reward/total": 0.3} for row in rows]
    assert [curve.name for curve in read_curves(jsonl(path, rows))] == ["code", "math"]
    (training,) = read_curves(jsonl(path, without(rows, "test/")))
    assert (training.metric, training.compute.tolist()) == ("env/all/reward/total", [400, 800, 1200])


def test_roll_validates_before_the_step(tmp_path):
    rows = [
        {"system/step": step, "critic/score/mean": 0.4, "critic/rewards/mean": 0.3, "system/samples": 64 * (step + 1)}
        | {"system/tps": 3200.0, "system/tps_gpu": 200.0, "time/step_total": 111.0 if step == 2 else 11.0}
        | (
            {"time/val_step": 100.0, "val_correct/math/mean": 0.2, "val_correct/code/mean": 0.1, "val_correct/all/mean": 0.15}
            if step == 2
            else {}
        )
        for step in (0, 1, 2, 3)
    ]
    assert framework_of(rows) == "ROLL"
    path = jsonl(tmp_path / "roll.jsonl", rows)
    code, math = read_curves(path)
    assert (code.name, math.name, math.reward.tolist(), hours(math)) == ("code", "math", [0.2], [22.0 * 16])
    (training,) = read_curves(jsonl(path, without(rows, "val_")))
    assert (training.metric, hours(training)) == ("critic/score/mean", [11.0 * 16 * step for step in (1, 2, 3, 4)])
    assert read_curves(path, choice=Choice(x="rollouts"))[0].compute.tolist() == [64, 128, 192, 256]
    (curve,) = read_curves(jsonl(path, [{**row, "val/accuracy": 0.5, "val/length": 0.7} for row in without(rows, "val_")]))
    assert curve.metric == "val/accuracy"


def test_every_framework_is_tested_here():
    """Whoever adds a framework to the vocabulary adds a test of its log above."""
    assert {framework.name for framework in FRAMEWORKS} == {
        "verl", "TRL", "prime-rl", "OpenRLHF", "AReaL", "slime", "SkyRL", "NeMo-RL", "open-instruct", "tinker-cookbook", "ROLL",
    }  # fmt: skip


def test_a_plain_log_is_no_framework():
    assert recognise(["step", "reward", "pass_rate", "gpu_hours"]) is None
