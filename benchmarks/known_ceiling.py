"""Real runs with a fast early phase and a known ceiling: does the interval of A contain it, and is it of use?

    python benchmarks/known_ceiling.py

Three RL runs of a small arithmetic task (examples/data/chain_known_ceiling.csv), each fitted with default settings on all
points and on the first 40 % of its compute. The format is learned within 20 steps and the rest climbs slowly: a single
sigmoid through the base overstates the ceiling by .10. Completions end before the longest problems are written out, which
makes .843 the practical ceiling. Printed beside it, without a requirement, are the 20 runs of chain_runs.csv, each with
its own proved ceiling.

The last line is {contained, widest, widest_at_40_percent, ...}; the exit status is 1 where a requirement does not hold.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from pathlib import Path

from _report import Requirement, finish

from scalerl import Choice, fit, read_curves
from scalerl.curves import Status
from scalerl.records.curve import Curve

DATA = Path(__file__).parents[1] / "examples" / "data"
PRACTICAL_CEILING = 0.843
EARLY = 0.40


@dataclass(frozen=True, slots=True)
class Row:
    """The 90 % interval of A for a share of a curve."""

    status: Status
    low: float
    high: float
    contains: bool

    @property
    def width(self) -> float:
        """Of the interval."""
        return self.high - self.low


def fitted(curve: Curve, *, share: float, ceiling: float) -> Row:
    """Fit the points within the first `share` of the compute, print and judge."""
    answer = fit(curve.window(0.0, share * float(curve.compute[-1])))
    A = answer.parameters.get("A")
    low, high = (0.0, 1.0) if A is None else (A.low, A.high)
    row = Row(answer.status, low, high, A is not None and low <= ceiling <= high)
    verdict = f"{'contains' if row.contains else 'misses'} {ceiling:.3f}"
    print(f"{curve.name:12} {share:4.0%}  A {low:.3f} .. {high:.3f}  {verdict:14}  {answer.status}", *answer.doubts, sep="\n      ")
    return row


def proved_ceilings() -> dict[str, float]:
    """The ceiling of each run of chain_runs.csv."""
    with (DATA / "chain_runs.csv").open(newline="") as file:
        return {row["run"]: float(row["ceiling"]) for row in csv.DictReader(file)}


def main() -> int:
    """Fit, print, judge."""
    runs = read_curves(DATA / "chain_known_ceiling.csv", choice=Choice(x="flops", y="pass1", by=("seed",)))
    whole = [fitted(curve, share=1.0, ceiling=PRACTICAL_CEILING) for curve in runs]
    early = [fitted(curve, share=EARLY, ceiling=PRACTICAL_CEILING) for curve in runs]
    print()
    proved = proved_ceilings()
    tuned = read_curves(DATA / "chain_runs.csv", choice=Choice(x="flops", y="pass_rate", by=("run",)))
    others = [fitted(curve, share=1.0, ceiling=proved[curve.name]) for curve in tuned]
    figures = {
        "contained": sum(row.contains for row in (*whole, *early)),
        "widest": max(row.width for row in whole),
        "widest_at_40_percent": max(row.width for row in early),
        "not_identified_at_40_percent": sum(row.status is Status.NOT_IDENTIFIED for row in early),
        "proved_contained": sum(row.contains for row in others) / len(others),
    }
    requirements = [
        Requirement("of 6 intervals contain the practical ceiling", figures["contained"], least=5),
        Requirement("widest interval with all points", figures["widest"], most=0.15),
        Requirement("widest interval with the first 40 % of the compute", figures["widest_at_40_percent"], most=0.35),
        Requirement("of 3 fits of the first 40 % say not_identified", figures["not_identified_at_40_percent"], least=3),
    ]
    return finish(requirements, figures)


if __name__ == "__main__":
    sys.exit(main())
