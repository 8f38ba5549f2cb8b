"""What `print(answer)` and `repr(answer)` show."""

import json
from dataclasses import replace

import numpy as np

from scalerl.core.units import DEVICE_HOURS
from scalerl.curves import Arm, backtest, compare, decided, fit
from scalerl.records.curve import Curve


def test_print_shows_status_doubts_parameters_forecasts_and_assumptions_in_that_order(paper):
    answer = fit(paper.curve("fig1a_8b_bs2048_100k", "scalerl_bs2048"), r0=0.40, window=(1_500, 50_000), at=(100_000,))
    first, *lines = str(answer).splitlines()
    assert first == "scalerl_bs2048: ok. The ceiling is bounded by the points."
    kinds = [line[2] if line[2] in "!-" else line.split()[0] for line in lines]
    doubts, notes = len(answer.doubts), 1 + len(answer.warnings) + len(answer.curve.notes)
    assert kinds == ["!"] * doubts + ["R0", "A", "C_mid", "B", "forecast"] + ["-"] * notes
    low, high = answer.parameters["A"].low, answer.parameters["A"].high
    assert f"({low:.3g} to {high:.3g})" in lines[doubts + 1]
    assert lines[doubts].split() == ["R0", "0.4", "given"]
    assert lines[doubts + 2].endswith("GPU-hours")
    assert lines[doubts + 4].startswith("  forecast of one new evaluation at 100k GPU-hours: 0.6")
    assert "sigmoid law on " in lines[doubts + 5]
    assert lines[doubts + 5].endswith("; intervals hold with probability 0.9")


def test_print_survives_what_cannot_be_fitted_and_names_nothing_foreign_raw():
    answer = fit(Curve.of("a\x1b[31m", DEVICE_HOURS, [1.0], [0.5]))
    text = str(answer)
    assert text.startswith("a?[31m: too_few_points. There are fewer points than a law has freedom.\n  - 1 point from 1 GPU-hours")
    assert repr(answer) == "<Fit of a\x1b[31m: too_few_points>".replace("\x1b", "?")


def test_print_shows_what_was_decided(paper):
    answer = fit(paper.curve("fig1a_8b_bs2048_100k", "scalerl_bs2048"), r0=0.40)
    asked = decided(answer, targets=(0.62,), budget=200_000)
    lines = str(asked).splitlines()
    assert [f"  {line}" for line in asked.decisions.lines(asked)] == [line for line in lines if line not in str(answer).splitlines()]
    assert sum(line.startswith("  target 0.62: reached with probability ") for line in lines) == 1
    assert sum(line.startswith("  budget 200k GPU-hours: ") for line in lines) == 1


def test_to_dict_is_what_json_can_write():
    C = np.linspace(1.0, 10.0, 12)
    answer = fit(Curve.of("climb", DEVICE_HOURS, C, 0.1 + 0.02 * C))
    asked = decided(answer, targets=(0.95,), budget=20.0)
    short = fit(Curve.of("short", DEVICE_HOURS, [1.0, 2.0], [0.1, 0.2]))
    for one in (replace(asked, backtest=backtest(asked)), short):
        json.dumps(one.to_dict(), allow_nan=False)
    compared = compare([Arm("one", (answer,)), Arm("short", (short,))])
    json.dumps(compared.to_dict(), allow_nan=False)
    assert asked.to_dict()["decisions"]["targets"][0]["compute"]["high"] is None
    assert short.to_dict()["B"] == {"value": None, "low": 0.0, "high": None, "identified": False, "source": "prior"}


def test_repr_is_one_short_line(paper):
    answer = fit(paper.curve("fig1a_8b_bs2048_100k", "scalerl_bs2048"), r0=0.40)
    A = answer.parameters["A"]
    assert repr(answer) == f"<Fit of scalerl_bs2048: {answer.status}, A within {A.low:.3g} .. {A.high:.3g}>"
