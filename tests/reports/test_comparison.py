"""Recipes side by side, word for word, on the terminal and on the page."""

import io
from dataclasses import replace
from datetime import date

import pytest
from rich.console import Console

from scalerl.curves.arms import Arm
from scalerl.curves.comparison import Comparison, Crossing, Pair, Standing, Tie
from scalerl.curves.result import Estimate
from scalerl.reports import comparison
from scalerl.reports.document import to_document
from scalerl.reports.html import render_html
from scalerl.reports.terminal import print_comparison

CROSSING = Crossing((2e3, 1e5), 0.93, Estimate(27_400.0, 18_200.0, 46_000.0, unit="compute"), 0.95)
APART = Pair(("large", "small"), 0.964, Estimate(0.039, 0.005, 0.073), CROSSING, None)
CLOSE = Pair(
    ("large", "small"),
    0.66,
    Estimate(0.008, -0.028, 0.045),
    replace(CROSSING, probability=0.02),
    Tie(0.613, (Estimate(1.63, 1.31, 2.05, unit=""), Estimate(1.85, 1.45, 2.48, unit="")), 0.23),
)
OPEN = Pair(("large", "small"), 0.93, Estimate(None, -0.01, 0.38, identified=False), None, None)
LARGE = Standing("large", 1, (), Estimate(0.645, 0.623, 0.668), Estimate(None, 0.001, 0.03, identified=False), 0.964)
SMALL = Standing("small", 3, ("small-2 (collapsed)",), Estimate(0.606, 0.583, 0.629), Estimate(0.009, 0.001, 0.03), 0.036)
FALLEN = Standing("fallen", 0, ("fallen (collapsed)",))


@pytest.fixture
def compared(planted):
    def of(*pairs, arms=(LARGE, SMALL, FALLEN)):
        members = tuple(Arm(arm.name, (planted.doubted_fit(arm.name),)) for arm in arms)
        return Comparison(members, "math", 0.9, 0.02, arms, pairs)

    return of


def test_a_recipe_that_ends_higher(compared):
    assert comparison.sentences(compared(APART)) == (
        "large ends higher than small, by 0.039 (90% interval 0.005 to 0.073), with probability 96%."
        " Their curves cross between 2000 and 100k GPU-hours with probability 93%, if they do at 27.4k GPU-hours"
        " (90% interval 18.2k to 46k GPU-hours); at the end of that range large leads with probability 95%.",
    )


def test_recipes_that_end_alike_are_ranked_by_b(compared):
    (sentence,) = comparison.sentences(compared(CLOSE))
    assert sentence == (
        "large and small are not told apart: their ceilings differ by 0.008 (90% interval -0.028 to 0.045), and 0.020 counts as equal."
        " With one ceiling of 0.613 for both, it is not decided that small climbs faster than large:"
        " B 1.85 (1.45 to 2.48) against 1.63 (1.31 to 2.05), with probability 77%."
        " Their curves do not cross between 2000 and 100k GPU-hours."
    )
    surely = replace(CLOSE, difference=Estimate(0.002, -0.01, 0.015), tie=replace(CLOSE.tie, faster=0.97), crossing=None)
    (sentence,) = comparison.sentences(compared(surely))
    assert sentence.startswith("large and small tie: their ceilings differ by 0.002")
    assert "large climbs faster than small: B 1.63 (1.31 to 2.05) against 1.85" in sentence


def test_what_is_not_bounded_is_no_verdict(compared):
    wide = replace(LARGE, A=Estimate(None, 0.6, 0.98, identified=False))
    (sentence,) = comparison.sentences(compared(OPEN, arms=(wide, SMALL)))
    assert sentence == (
        "Whether large ends higher than small is not decided: the points do not bound the ceiling of large, the difference may be"
        " -0.010 to 0.380 (90% interval), and the probability of 93% that large ends higher is not the points' alone:"
        " it leans on taking every ceiling for equally likely beforehand."
    )


def test_one_recipe_of_several_seeds_and_none_with_a_ceiling(compared):
    assert comparison.sentences(compared(arms=(SMALL,))) == (
        "The 3 runs of small put its ceiling at 0.606 (90% interval 0.583 to 0.629), and its runs scatter by 0.009 (standard deviation).",
    )
    assert comparison.sentences(compared(arms=(FALLEN,))) == ("No recipe has a ceiling to compare.",)


def test_of_many_recipes_the_table_tells_the_pairs(compared):
    assert comparison.sentences(compared(*[APART] * 5)) == ("large ranks first of 3: its ceiling is the highest with probability 96%.",)


def test_tables_and_notes(compared):
    one = compared(APART)
    assert comparison.title(one) == "Recipes side by side on math"
    assert comparison.ranking(one).rows == (
        ("large", "1", "0.645", "0.623 to 0.668", "not measured", "96%"),
        ("small", "3", "0.606", "0.583 to 0.629", "0.009", "4%"),
        ("fallen", "0", "", "", "", ""),
    )
    notes = comparison.notes(one)
    assert notes[0].startswith("large: one run each, so that the spread between seeds is that of the prior")
    assert "small: 1 run left out, from which no ceiling follows: small-2 (collapsed)." in notes
    assert "large: The power law explains the points far better (AICc lower by 12)." in notes


def test_rewards_of_different_names_are_pointed_out(compared):
    one = compared(APART)
    assert not any("different names" in note for note in comparison.notes(one))
    other = replace(one.members[1].fits[0], curve=replace(one.members[1].fits[0].curve, metric="train/reward"))
    mixed = replace(one, members=(one.members[0], Arm("small", (other,))))
    assert comparison.notes(mixed)[-1] == (
        f"The rewards have different names ({one.members[0].fits[0].curve.metric} of large; train/reward of small):"
        " they compare only if all were evaluated on the same thing."
    )


def test_terminal_page_and_document_tell_the_same(compared, planted):
    one = compared(APART)
    stream = io.StringIO()
    print_comparison(one, Console(file=stream, width=200, highlight=False))
    html = render_html([planted.fit("large")], title="Report", written=date(2026, 1, 31), compared=[one])
    for part in ("large ends higher than small", "Recipes by ceiling", "spread between seeds"):
        assert part in stream.getvalue()
        assert part in html
    domain = to_document([planted.fit()], compared=[one])["comparison"]["domains"][0]
    assert (domain["domain"], domain["arms"][0]["name"], domain["pairs"][0]["higher"]) == ("math", "large", 0.964)
    assert domain["pairs"][0]["crossing"]["compute"]["value"] == 27_400.0
    assert to_document([planted.fit()])["comparison"] is None
