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


@pytest.mark.parametrize(
    ("framework", "rows", "metric", "axis", "compute"),
    [
        (
            "OpenRLHF",
            [
                {
                    "train/global_step": 1,
                    "train/rollout/reward_mean": 0.1,
                    "train/rollout/num_samples": 8,
                    "train/rollout/response_length_mean": 50,
                },
                {"eval/global_step": 1, "eval/eval_math_pass1": 0.4, "eval/eval_math_pass8": 0.9},
            ],
            "eval/eval_math_pass1",
            TOKENS,
            [400.0],
        ),
        (
            "AReaL",
            [
                {
                    "step": 1,
                    "rollout/reward": 0.1,
                    "eval-rollout/reward": 0.2,
                    "timeperf/rollout": 5.0,
                    "timeperf/train_step": 3.0,
                    "timeperf/eval": 9.0,
                }
            ],
            "eval-rollout/reward",
            SECONDS,
            [8.0],
        ),
        (
            "slime",
            [
                {"rollout/step": 1, "rollout/raw_reward": 0.1, "rollout/rewards": 0.0, "perf/step_time": 7.0},
                {"eval/step": 1, "eval/aime": 0.3},
            ],
            "eval/aime",
            SECONDS,
            [7.0],
        ),
        (
            "SkyRL",
            [{"trainer/global_step": 1, "reward/avg_raw_reward": 0.1, "eval/all/avg_score": 0.2, "timing/step": 4.0}],
            "eval/all/avg_score",
            SECONDS,
            [4.0],
        ),
        (
            "NeMo-RL",
            [
                {
                    "step": 1,
                    "train/reward": 0.1,
                    "validation/accuracy": 0.2,
                    "timing/train/total_step_time": 450.0,
                    "performance/tokens_per_sec": 1600.0,
                    "performance/tokens_per_sec_per_gpu": 200.0,
                }
            ],
            "validation/accuracy",
            DEVICE_HOURS,
            [1.0],
        ),
        (
            "open-instruct",
            [{"training_step": 1, "global_step": 512, "scores": 0.4, "val/num_total_tokens": 5000, "val/accuracy": 0.9}],
            "scores",
            TOKENS,
            [5000.0],
        ),
        (
            "tinker-cookbook",
            [{"step": 0, "env/all/reward/total": 0.1, "test/env/all/reward/total": 0.3, "progress/done_frac": 0.1}],
            "test/env/all/reward/total",
            STEPS,
            [0.0],
        ),
        ("ROLL", [{"system/step": 1, "critic/score/mean": 0.4, "val/math": 0.2, "time/step_total": 11.0}], "val/math", SECONDS, [11.0]),
    ],
)
def test_other_frameworks_are_recognised(tmp_path, framework, rows, metric, axis, compute):
    columns = {name for row in rows for name in row}
    recognised = recognise(columns)
    assert recognised is not None
    assert recognised.name == framework
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert (curve.metric, curve.axis) == (metric, axis)
    assert curve.compute.tolist() == pytest.approx(compute)


def test_every_framework_is_tested_here():
    assert {framework.name for framework in FRAMEWORKS} == {
        "verl", "TRL", "prime-rl", "OpenRLHF", "AReaL", "slime", "SkyRL", "NeMo-RL", "open-instruct", "tinker-cookbook", "ROLL",
    }  # fmt: skip


def test_a_plain_log_is_no_framework():
    assert recognise(["step", "reward", "pass_rate", "gpu_hours"]) is None
