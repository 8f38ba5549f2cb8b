"""What overlapping generation and training saves: wall time per step at k = 8 against k = 0, on the laptop scale.

    python benchmarks/overlap.py [REPETITIONS [NUM_STEPS]]

The ScaleRL recipe from one base, without a filter, so that every step trains on all of its 128 completions, and without
evaluations in between: k = 0 inline, k = 0 in processes, k = 8 in processes. At k = 0 generation and training take turns; k = 0
counts with the faster of the two. Two cores, one thread a process. The variants take turns too, and the median of their
repetitions counts: on cores that are shared with others wall time suffers, and most that of what needs both.

Prints, as its last line, {wall_ratio_k8_k0, ideal, ...}: seconds per step at k = 8 over those at k = 0; what perfect overlap
would give, max(generate, train) / (generate + train), by the ledger at k = 0; the shares of wall time that trainer and
generator are idle at k = 8, what for, and the tokens that a step of each variant trains on, which tell whether the work is the
same.
"""

import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from _report import Requirement, finish

from scalerl.recipes import resolve
from scalerl.records.cost import Activity
from scalerl.records.events import StepFinished
from scalerl.runs import RunDirectory
from scalerl.runs.training import train

VARIANTS = {"k0_inline": (0, "inline"), "k0_processes": (0, "processes"), "k8_processes": (8, "processes")}
OVERRIDES = (
    "curriculum.filters=[]",
    "evaluation.every_steps=1000000",
    "evaluation.early_growth=1e6",
    "evaluation.samples=1",
    "task.num_held_out=256",
    "checkpoints.every_steps=1000000",
)
SKIPPED_STEPS = 10
"""Before caches are warm and, at k = 8, as many batches are under way as ever."""
GENERATING = (Activity.GENERATE, Activity.REPREFILL)


@dataclass(frozen=True, slots=True)
class Measured:
    """A run, by its step."""

    step_s: float
    tokens: float
    """Trained."""
    seconds: Counter[tuple[str, str, str]]
    """By device, activity and detail."""

    def of(self, role: str, *activities: str) -> float:
        """Seconds a step that a role's device spends on some activities."""
        return sum(s for (device, activity, _), s in self.seconds.items() if device.startswith(role) and activity in activities)


def main() -> int:
    """Run, compare, print."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    num_steps = int(sys.argv[2]) if len(sys.argv) > 2 else 80
    runs: dict[str, list[Measured]] = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        for repetition in range(repetitions):
            for name, (k, runtime) in VARIANTS.items():
                run = measured(Path(folder) / f"{name}-{repetition}", num_steps=num_steps, k=k, runtime=runtime)
                runs[name].append(run)
                print(f"{name:14} {run.step_s:.3f} s a step, {run.tokens:.0f} tokens; " + described(run), flush=True)
    usual = {name: sorted(of_variant, key=lambda run: run.step_s)[len(of_variant) // 2] for name, of_variant in runs.items()}
    faster = min("k0_inline", "k0_processes", key=lambda name: usual[name].step_s)
    k0, k8 = usual[faster], usual["k8_processes"]
    generate_s, train_s = k0.of("generator", *GENERATING), k0.of("trainer", Activity.TRAIN)
    figures: dict[str, Any] = {
        "wall_ratio_k8_k0": k8.step_s / k0.step_s,
        "wall_ratios": [round(one.step_s / other.step_s, 3) for one, other in zip(runs["k8_processes"], runs[faster], strict=True)],
        "ideal": max(generate_s, train_s) / (generate_s + train_s),
        "trainer_idle_share_k8": k8.of("trainer", Activity.IDLE) / k8.step_s,
        "generator_idle_share_k8": k8.of("generator", Activity.IDLE) / k8.step_s,
        "faster_k0": faster,
        "generate_s": generate_s,
        "train_s": train_s,
        **{f"step_s_{name}": run.step_s for name, run in usual.items()},
        **{f"tokens_{name}": median(run.tokens for run in of_variant) for name, of_variant in runs.items()},
    }
    return finish([Requirement("wall time per step, k = 8 over k = 0", figures["wall_ratio_k8_k0"], most=0.75)], figures)


def measured(folder: Path, *, num_steps: int, k: int, runtime: str) -> Measured:
    """A run of so many steps, by its events from the end of the last step that is skipped to that of the last one."""
    overrides = [*OVERRIDES, f"pipeline.k={k}", f"runtime.type={runtime}", f"budget.steps={num_steps}"]
    run = RunDirectory.open(train(resolve("scalerl", overrides=overrides), folder).folder)
    ends_s: list[float] = []
    tokens = 0.0
    seconds: Counter[tuple[str, str, str]] = Counter()
    num_measured = num_steps - SKIPPED_STEPS
    for entry in run.events():
        is_measured = SKIPPED_STEPS <= len(ends_s) < num_steps
        for cost in entry.event.costs if is_measured else ():
            seconds[cost.device or "", cost.activity, cost.detail] += cost.seconds / num_measured
        if isinstance(entry.event, StepFinished):
            ends_s.append(entry.time_s)
            tokens += (entry.event.metrics.get("num_tokens") or 0.0) / num_measured if is_measured else 0.0
    return Measured((ends_s[-1] - ends_s[SKIPPED_STEPS - 1]) / num_measured, tokens, seconds)


def described(run: Measured) -> str:
    """What the devices do for longest, in shares of a step."""
    return ", ".join(f"{' '.join(kind).strip()} {s / run.step_s:.2f}" for kind, s in run.seconds.most_common(8))


if __name__ == "__main__":
    raise SystemExit(main())
