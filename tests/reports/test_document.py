"""The answer as JSON: the contract's keys, and nothing that a parser refuses."""

import json

import pytest

from scalerl.core.errors import UsageError
from scalerl.core.units import TOKENS
from scalerl.curves.result import Status
from scalerl.reports.document import to_document, to_json


def test_the_contract(planted):
    document = to_document([planted.fit()])
    assert document["axis"] == {"name": "device_hours", "unit": "GPU-hours"}
    assert document["level"] == 0.9
    (curve,) = document["curves"]
    assert {"name", "points", "window", "status", "R0", "A", "B", "C_mid", "rmse", "forecasts", "warnings"} <= set(curve)
    assert curve["A"] == {"value": 0.645, "low": 0.632, "high": 0.661, "identified": True, "source": "fitted"}
    assert curve["forecasts"][1] == {"compute": 200e3, "mean": 0.643, "low": 0.633, "high": 0.653}


def test_what_has_no_bound_is_null_and_the_text_is_valid_json(planted):
    def refuse(constant):
        raise AssertionError(constant)

    fits = [planted.unbounded_fit(), planted.unanswered_fit(Status.TOO_FEW_POINTS)]
    curves = json.loads(to_json(fits), parse_constant=refuse)["curves"]
    assert curves[0]["C_mid"] == {"value": None, "low": 9e3, "high": None, "identified": False, "source": "fitted"}
    assert curves[1]["B"]["high"] is None
    assert curves[1]["rmse"] is None


def test_json_is_ascii_whatever_a_run_is_called(planted):
    text = to_json([planted.fit("läuft \x1b[31m \udcff")])
    assert text.isascii()
    assert "\x1b" not in text
    assert json.loads(text)["curves"][0]["name"] == "läuft \x1b[31m \udcff"


def test_curves_on_different_axes_share_none(planted):
    fits = [planted.fit(), planted.fit_on(TOKENS)]
    document = to_document(fits)
    assert document["axis"] is None
    assert [curve["axis"]["name"] for curve in document["curves"]] == ["device_hours", "tokens"]


def test_no_fit_is_no_document():
    with pytest.raises(UsageError, match="there is no curve to report"):
        to_document([])
