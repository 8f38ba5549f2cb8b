"""Joins what two figures of arXiv 2510.13786 show of one run: 8B, batch 2,048, 100,000 GPU-hours.

    python examples/make_100k_run.py > examples/data/paper_100k_run.csv

Figure 1a shows the run to its end but hides its first markers behind others; figure 10a shows those. A marker of 10a is
taken where 1a has none within 2 % of its compute: the same evaluation must not count twice.
"""

import csv
import sys
from pathlib import Path

POINTS = Path(__file__).parent / "data" / "scalerl_paper_points.csv"
WHOLE, EARLY = ("fig1a_8b_bs2048_100k", "scalerl_bs2048"), ("fig10a_batch_size", "bs2048")


def joined() -> list[dict[str, str]]:
    """The rows of both figures, each evaluation once, sorted by compute."""
    with POINTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    whole, early = ([row for row in rows if (row["figure_key"], row["series"]) == key] for key in (WHOLE, EARLY))
    hidden = [row for row in early if not any(is_same_evaluation(row, other) for other in whole)]
    return sorted(whole + hidden, key=lambda row: float(row["gpu_hours"]))


def is_same_evaluation(row: dict[str, str], other: dict[str, str]) -> bool:
    """Whether two markers stand at the same compute, within what can be read off a figure."""
    return abs(float(row["gpu_hours"]) / float(other["gpu_hours"]) - 1.0) <= 0.02


if __name__ == "__main__":
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["gpu_hours", "pass_rate", "paper_figure"])
    writer.writerows([row["gpu_hours"], row["pass_rate"], row["paper_figure"].removeprefix("arXiv ")] for row in joined())
