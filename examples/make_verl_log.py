"""Writes a small training log as verl's file logger does, with a planted curve: ceiling .72, start .31, C_mid 300 GPU-hours.

    python examples/make_verl_log.py > examples/data/verl_run.jsonl

No model was trained for it. Step times include the time of testing and saving, as in verl, and are per step.
"""

import json
import random

NUM_GPUS = 32
A, R0, C_MID_GPU_HOURS, B = 0.72, 0.31, 300.0, 1.6


def main() -> None:
    """Print one JSON object for each step."""
    draw, trained_s = random.Random(0), 0.0
    for step in range(601):
        row: dict[str, float] = {"training/global_step": step}
        if step:
            step_s, testing_s = draw.gauss(150.0, 6.0), 240.0 if step % 25 == 0 else 0.0
            trained_s += step_s
            row |= {
                "timing_s/step": step_s + testing_s,
                "timing_s/testing": testing_s,
                "perf/time_per_step": step_s + testing_s,
                "critic/score/mean": min(1.0, pass_rate(trained_s) + draw.gauss(0.04, 0.02)),
            }
        if step % 25 == 0:
            row["val-core/math500/acc/mean@8"] = pass_rate(trained_s) + draw.gauss(0.0, 0.004)
        print(json.dumps({"step": step, "data": {key: round(value, 4) for key, value in row.items()}}))


def pass_rate(trained_s: float) -> float:
    """The planted law."""
    gpu_hours = trained_s * NUM_GPUS / 3600.0
    return R0 + (A - R0) / (1.0 + (C_MID_GPU_HOURS / gpu_hours) ** B) if gpu_hours else R0


if __name__ == "__main__":
    main()
