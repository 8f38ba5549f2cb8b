"""What a reader is told, word for word."""

from dataclasses import replace

import numpy as np
import pytest

from scalerl.core.text import printable
from scalerl.core.units import STEPS, TOKENS
from scalerl.curves.checks import Collapse
from scalerl.curves.result import Estimate, Status
from scalerl.records.curve import Curve
from scalerl.reports import words


def test_a_bounded_ceiling_is_named_with_its_interval(planted):
    assert words.headline(planted.fit()) == (
        "The mean@16 climbs towards a ceiling of 0.645 (90% interval 0.632 to 0.661). Half of the gain is reached at 10.9k GPU-hours."
    )


def test_an_unbounded_ceiling_gets_a_least_value_and_no_point_value(planted):
    assert words.headline(planted.unbounded_fit()) == (
        "These points do not bound the ceiling of the mean@16 from above; it is at least 0.580 (90% interval 0.580 to 1.000)."
    )


def test_f1_a_flat_curve_promises_nothing(planted):
    curve = Curve.of("flat", STEPS, [1, 2, 3], [0.50, 0.51, 0.52])
    fit = replace(planted.unanswered_fit(Status.FLAT), curve=curve, window=(1.0, 3.0))
    assert words.headline(fit) == (
        "No change of the pass rate with compute can be told from noise: it stays about 0.510 in the window, "
        "and nothing follows about more compute."
    )


def test_a_level_that_is_doubted_denies_no_change(planted):
    curve = Curve.of("asked for a constant", STEPS, [1, 2, 3], [0.3, 0.5, 0.7])
    fit = replace(planted.doubted_fit(), status=Status.FLAT, curve=curve, window=(1.0, 3.0))
    assert words.headline(fit) == (
        "The pass rate is 0.500 on average in the window, and nothing follows about more compute. There are reasons to doubt this, below."
    )


def test_a_doubted_answer_says_so(planted):
    assert words.headline(planted.doubted_fit()) == f"{words.headline(planted.fit())} There are reasons to doubt this, below."


@pytest.mark.parametrize(("value", "text"), [(1e300, "1e+300"), (-2.5e9, "-2.5e+09"), (12.0, "12")])
def test_gigantic_bounds_are_no_gigantic_words(value, text):
    assert words.reward(value, Curve.of("c", STEPS, [1.0], [0.5], bounds=(-1.5e308, 1.5e308))) == text


def test_a_saturated_curve_has_a_ceiling_but_no_climb(planted):
    fit = replace(planted.fit(), status=Status.SATURATED)
    assert words.headline(fit) == (
        "The mean@16 had reached its ceiling of 0.645 (90% interval 0.632 to 0.661) before the first points: "
        "where it ends is known, how it climbed is not."
    )


def test_f4_a_collapse_names_peak_and_end(planted):
    curve = Curve.of("run", STEPS, [32, 64, 96, 128, 160], [0.3, 0.5, 0.6, 0.2, 0.03])
    fit = replace(planted.unanswered_fit(Status.COLLAPSED), curve=curve, window=(32.0, 160.0))
    of_all = replace(fit, collapse=Collapse(96.0, 0.6, 0.03))
    assert words.headline(of_all) == (
        "The pass rate rose to 0.600 at 96 steps and fell to 0.030 by the last point: no ceiling follows from the whole series."
    )
    assert words.headline(replace(fit, collapse=Collapse(32.0, 0.6, 0.03))).startswith("The pass rate fell from 0.600 at 32 steps to 0.030")
    assert words.headline(fit) == Status.COLLAPSED.meaning


@pytest.mark.parametrize(
    ("count", "subject"), [(0, "There are no points"), (1, "There is one point"), (2, "There are 2 points")], ids=["none", "one", "two"]
)
def test_too_few_points_are_counted(planted, count, subject):
    compute = np.arange(1.0, 1.0 + count)
    curve = Curve.of("few", STEPS, compute, np.full(count, 0.5))
    fit = replace(planted.unanswered_fit(Status.TOO_FEW_POINTS), curve=curve, window=(0.0, 10.0))
    assert words.headline(fit) == f"{subject} in the window, fewer than a law has freedom: nothing can be said about the ceiling."


def test_hits_are_counted_on_points_the_fit_has_not_seen(planted):
    """Two later points, one exactly on the law and one .05 above it: 1 hit, mean error .025."""
    compute = np.array([2e3, 5e4, 6e4, 8e4])
    curve = Curve.of("run", TOKENS, compute, planted.sigmoid(compute) + np.array([0.0, 0.0, 0.0, 0.05]))
    assert words.later_points(replace(planted.fit(), curve=curve)) == (
        "Of 2 points after the window, which the fit has not seen, 1 lies inside the 90% interval of one new evaluation; "
        "the mean is off by 0.025 on average."
    )


def test_nothing_is_judged_without_later_points_or_without_a_fit(planted):
    assert words.later_points(replace(planted.fit(), window=(0.0, np.inf))) is None
    assert words.later_points(planted.unanswered_fit(Status.FLAT)) is None


def test_a_procedure_without_intervals_claims_none(planted):
    assert words.headline(planted.fit_without_intervals()).startswith("The mean@16 climbs towards a ceiling of 0.645. ")
    assert words.later_points(planted.fit_without_intervals()) == (
        "On 12 points after the window, which the fit has not seen, the mean is off by 0.003 on average."
    )


@pytest.mark.parametrize(("bounds", "text"), [((0.0, 1.0), "0.646"), ((0.0, 100.0), "0.6"), ((-1.0, 1.0), "0.646"), ((0.0, 10_000.0), "1")])
def test_f3_rewards_are_rounded_by_the_range_of_the_grader(bounds, text):
    assert words.reward(0.6456, Curve.of("c", STEPS, [1.0], [0.5], bounds=bounds)) == text


@pytest.mark.parametrize(
    ("unit", "low", "high", "text"),
    [
        ("compute", 9_500.0, 12_600.0, "9500 to 12.6k GPU-hours"),
        ("compute", 9_000.0, np.inf, "above 9000 GPU-hours"),
        ("", 1.4, 2.1, "1.4 to 2.1"),
        ("reward", 0.632, 0.661, "0.632 to 0.661"),
        ("reward", 0.4, 0.4, ""),
    ],
)
def test_intervals_carry_their_unit_once(planted, unit, low, high, text):
    assert words.estimate_interval(Estimate(None, low, high, identified=False, unit=unit), planted.curve()) == text


def test_terminal_codes_and_reversed_text_are_not_printed():
    assert printable("a\x1b[31mb\nc\u202ed é") == "a?[31mb?c?d é"


def test_what_is_there_is_never_nothing():
    assert [words.share(part) for part in (0.0, 0.0004, 0.0005, 0.1234, 1.0)] == ["0.0%", "<0.1%", "0.1%", "12.3%", "100.0%"]


def test_time_of_devices_is_in_hours_from_one_on():
    assert [words.device_time(seconds) for seconds in (0.0, 230.64, 3_599.0, 5_400.0, 3.6e8)] == [
        "0.0 device-seconds",
        "230.6 device-seconds",
        "3,599.0 device-seconds",
        "1.5 device-hours",
        "100k device-hours",
    ]
