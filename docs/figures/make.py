"""Draws the figures of the README: `make figures`.

paper_100k_run.svg: the 100,000 GPU-hour run of arXiv 2510.13786, fitted on its first half, with what came after.
laptop_run.svg: a quickstart run (`laptop_run.py` writes its data), fitted on its first half, with what came after.
"""

from pathlib import Path

from scalerl import fit, read_curves
from scalerl.reports import write_figure

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "examples" / "data"


def main() -> None:
    """Fit, and write the figure beside this file."""
    (curve,) = read_curves(DATA / "paper_100k_run.csv")
    answer = fit(curve, r0=0.40, window=(1_500, 50_000), at=(100_000,))
    write_figure(answer, HERE / "paper_100k_run.svg", title="A 100,000 GPU-hour RL run, predicted from its first half")
    (curve,) = read_curves(DATA / "laptop_run.csv")
    half = 0.5 * float(curve.compute[-1])
    answer = fit(curve, window=(0.0, half), at=(2.0 * half,))
    write_figure(answer, HERE / "laptop_run.svg", title="Minutes of RL on a laptop's CPU, predicted from their first half")


if __name__ == "__main__":
    main()
