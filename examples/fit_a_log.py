"""Reads a training log, fits the law, and acts on the answer: what `scalerl fit` does, from Python.

python examples/fit_a_log.py
"""

from pathlib import Path

import scalerl

LOG = Path(__file__).parent / "data" / "verl_run.jsonl"
TARGET_PASS_RATE = 0.70


def main() -> None:
    """Say what ten times the compute would bring."""
    (curve,) = scalerl.read_curves(LOG, choice=scalerl.Choice(gpus=32))
    answer = scalerl.fit(curve)
    ceiling = answer.parameters["A"]
    print(f"{len(curve)} evaluations of {curve.metric} over {curve.compute[-1]:.0f} {curve.axis.unit}: {answer.status}")
    print(f"ceiling between {ceiling.low:.3f} and {ceiling.high:.3f}")

    forecast = answer.forecast(10.0 * curve.compute[-1])
    assert forecast is not None, "this curve has an answer"
    print(f"ten times the compute: {forecast.mean:.3f} ({forecast.low:.3f} to {forecast.high:.3f})")
    if ceiling.high < TARGET_PASS_RATE:
        print(f"{TARGET_PASS_RATE} is out of reach of this recipe: change it instead of paying on")


if __name__ == "__main__":
    main()
