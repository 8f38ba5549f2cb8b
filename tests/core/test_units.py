"""Amounts of compute: read with their units, refused with those of another axis, printed for people."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalerl.core.errors import UnitError
from scalerl.core.units import AXES, DEVICE_HOURS, FLOPS, SECONDS, STEPS, TOKENS, USD, Axis, Compute, format_number, parse_quantity


@pytest.mark.parametrize(
    ("text", "axis", "value"),
    [
        ("50k", DEVICE_HOURS, 50_000.0),
        ("50k GPU-hours", DEVICE_HOURS, 50_000.0),
        ("1.5k gpu_hours", DEVICE_HOURS, 1_500.0),
        ("200 device-hours", DEVICE_HOURS, 200.0),
        ("2h", SECONDS, 7200.0),
        ("1.5 min", SECONDS, 90.0),
        ("600 GFLOP", FLOPS, 6e11),
        ("1e21 FLOPs", FLOPS, 1e21),
        ("2 ZFLOP", FLOPS, 2e21),
        (" .5M tokens ", TOKENS, 500_000.0),
        ("$", USD, None),
        ("12 $", USD, 12.0),
        ("30s", SECONDS, 30.0),
        ("400 steps", STEPS, 400.0),
        (0, FLOPS, 0.0),
        (7, Axis("my_column", "my_column"), 7.0),
        ("7 my_column", Axis("my_column", "my_column"), 7.0),
    ],
)
def test_amounts_are_read(text, axis, value):
    if value is None:
        with pytest.raises(UnitError):
            parse_quantity(text, axis)
    else:
        assert parse_quantity(text, axis) == Compute(value, axis)


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("50k GPU-hours", FLOPS),
        ("1e21 FLOP", DEVICE_HOURS),
        ("30 minutes", DEVICE_HOURS),
        ("48h", DEVICE_HOURS),
        ("48 hours", DEVICE_HOURS),
        ("12 apples", STEPS),
        ("-3", FLOPS),
        ("nan", FLOPS),
        ("1e999", FLOPS),
        ("", FLOPS),
        ("many", FLOPS),
        (True, FLOPS),
        (math.inf, FLOPS),
    ],
)
def test_another_unit_is_refused_in_one_sentence(text, axis):
    with pytest.raises(UnitError) as caught:
        parse_quantity(text, axis, where="--at")
    assert str(caught.value).startswith("--at: ")
    assert axis.unit in str(caught.value)


@given(st.floats(0.0, 1e24), st.sampled_from(list(AXES.values())))
def test_an_amount_with_its_own_unit_reads_back(value, axis):
    assert parse_quantity(f"{value!r} {axis.unit}", axis).value == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (50_000, "50k"),
        (2542.4, "2542"),
        (0.6449, "0.645"),
        (1e21, "1Z"),
        (6e11, "600G"),
        (9_999, "9999"),
        (999.6, "1000"),
        (9.999e23, "1e+24"),
        (9_999.9, "10k"),
        (0.0, "0"),
        (-0.12, "-0.12"),
    ],
)
def test_numbers_for_people(value, text):
    assert format_number(value) == text


@given(st.floats(1e-6, 1e24))
def test_numbers_for_people_are_right_to_three_digits(value):
    text = format_number(value)
    factors = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21}
    number = float(text[:-1]) * factors[text[-1]] if text[-1] in factors else float(text)
    assert number == pytest.approx(value, rel=6e-3)
