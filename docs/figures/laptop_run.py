"""Writes the curve of a quickstart run as examples/data/laptop_run.csv, the data of a figure of the README.

python docs/figures/laptop_run.py runs/quickstart
"""

import csv
import sys
from pathlib import Path

from scalerl import RunDirectory, read_curves

TARGET = Path(__file__).parents[2] / "examples" / "data" / "laptop_run.csv"


def main(run: Path) -> None:
    """One row per evaluation: compute without evaluation and warm start, pass rate, completions behind it, the proved ceiling."""
    (curve,) = read_curves(run)
    ceiling = RunDirectory.open(run).recipe.task.ceiling()
    assert curve.trials is not None, "a run counts its evaluations"
    with TARGET.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["flops", "pass_rate", "trials", "ceiling"])
        for compute, reward, trials in zip(curve.compute, curve.reward, curve.trials, strict=True):
            rows.writerow([f"{compute:.0f}", f"{reward:.6f}", f"{trials:.0f}", f"{ceiling:.6f}"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
