"""What JSON cannot write becomes null, wherever it lies."""

import json
import math

from scalerl.core.plain import finite


def test_infinities_and_nan_are_none_at_any_depth_and_all_else_stays():
    value = {"a": math.inf, "b": [math.nan, (1, -math.inf, 0.0)], "c": {"d": "inf", "e": None, "f": True}}
    assert finite(value) == {"a": None, "b": [None, [1, None, 0.0]], "c": {"d": "inf", "e": None, "f": True}}
    assert json.loads(json.dumps(finite(value), allow_nan=False))["b"] == [None, [1, None, 0.0]]
