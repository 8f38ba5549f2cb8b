"""What overlapping generation and training saves: wall time per step at k = 8 against k = 0, on the laptop scale.

    python benchmarks/overlap.py [NUM_STEPS]

Runs the ScaleRL recipe three times from one base, without evaluations in between: k = 0 inline, k = 0 and k = 8 in
processes. Prints, as its last line, {wall_ratio_k8_k0, ideal, ...}: seconds per step at k = 8 over those of the faster
k = 0 run, and the ratio that perfect overlap would give, max(generate, train) / (generate + train), from the ledger of
that run. On two cores that are shared with others the ratio suffers; both sides are measured one after the other.
"""

import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from scalerl.recipes import resolve
from scalerl.records.cost import Activity
from scalerl.records.events import StepFinished
from scalerl.runs import RunDirectory
from scalerl.runs.training import train

GENERATING = {Activity.GENERATE, Activity.REPREFILL}
SKIPPED_STEPS = 5
"""Before caches are warm and the first groups overlap."""


def measured(folder: Path, *, num_steps: int, k: int, runtime: str) -> tuple[float, dict[str, float]]:
    """Seconds per step, and per role the seconds of work per step."""
    overrides = [
        f"pipeline.k={k}",
        f"runtime.type={runtime}",
        f"budget.steps={num_steps}",
        "evaluation.every_steps=1000000",
        "evaluation.early_growth=1e6",
    ]
    overrides += ["evaluation.samples=1", "task.num_held_out=256", "checkpoints.every_steps=1000000"]
    run = RunDirectory.open(train(resolve("scalerl", overrides=overrides), folder).folder)
    work_s: dict[str, float] = defaultdict(float)
    times: list[float] = []
    evaluated_s = 0.0
    for entry in run.events():
        if isinstance(entry.event, StepFinished):
            times.append(entry.time_s)
        if SKIPPED_STEPS <= len(times) < num_steps or isinstance(entry.event, StepFinished):
            evaluated_s += getattr(entry.event, "blocked_s", 0.0) if len(times) >= SKIPPED_STEPS else 0.0
            for cost in entry.event.costs if len(times) > SKIPPED_STEPS else ():
                role = "generate" if cost.activity in GENERATING else cost.activity
                work_s[role] += cost.seconds / (num_steps - SKIPPED_STEPS)
    return (times[-1] - times[SKIPPED_STEPS - 1] - evaluated_s) / (num_steps - SKIPPED_STEPS), work_s


def main() -> None:
    """Run, compare, print."""
    num_steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryDirectory() as folder:
        step_s, work_s = {}, {}
        for name, k, runtime in (("k0_inline", 0, "inline"), ("k0_processes", 0, "processes"), ("k8", 8, "processes")):
            step_s[name], work_s[name] = measured(Path(folder) / name, num_steps=num_steps, k=k, runtime=runtime)
            print(f"{name}: {step_s[name]:.3f} s a step; " + ", ".join(f"{role} {s:.3f}" for role, s in sorted(work_s[name].items())))
    faster = min("k0_inline", "k0_processes", key=lambda name: step_s[name])
    generate_s, train_s = work_s[faster]["generate"], work_s[faster][Activity.TRAIN]
    figures = {
        "wall_ratio_k8_k0": round(step_s["k8"] / step_s[faster], 3),
        "ideal": round(max(generate_s, train_s) / (generate_s + train_s), 3),
        **{f"step_s_{name}": round(seconds, 4) for name, seconds in step_s.items()},
        "faster_k0": faster,
        "generate_s": round(generate_s, 4),
        "train_s": round(train_s, 4),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
