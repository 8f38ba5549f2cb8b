"""What follows from a fit, word for word, on the terminal and on the page."""

import io
from dataclasses import replace
from datetime import date

import pytest
from rich.console import Console

from scalerl.curves.backtest import Backtest, Prefix
from scalerl.curves.decisions import Decisions, Outlook, Reach, Verdict
from scalerl.curves.result import Estimate, Status
from scalerl.reports import decisions
from scalerl.reports.document import to_document
from scalerl.reports.html import render_html
from scalerl.reports.terminal import print_fit

NEVER = float("inf")
REACHES = (
    Reach(0.6, 1.0, Estimate(26_560.0, 24_600.0, 28_500.0, unit="compute"), by_budget=1.0),
    Reach(0.63, 0.86, Estimate(71_900.0, 48_500.0, NEVER, unit="compute"), by_budget=0.72),
    Reach(0.70, 0.0, Estimate(None, NEVER, NEVER, identified=False, unit="compute"), by_budget=0.0),
)
OUTLOOK = Outlook(46_600.0, Estimate(0.011, 0.007, 0.016), 0.01, Estimate(0.004, 0.002, 0.008), 0.0005, Verdict.STOP)


def prefix(share, error, *, A=0.64):
    ceiling = Estimate(A, 0.62, 0.66, identified=A is not None)
    return Prefix(
        share * 1e5,
        share,
        round(30 * share),
        Status.OK if A else Status.NOT_IDENTIFIED,
        ceiling,
        Estimate(0.639 + error, 0.63, 0.65),
        error,
    )


BACKTEST = Backtest(0.639, 0.02, (prefix(0.1, 0.08, A=None), prefix(0.2, -0.017), prefix(0.5, -0.006), prefix(0.8, 0.001)))


def leading(fit):
    """`fit` as one with a posterior, which these tests never look into."""
    return replace(fit, best=replace(fit.best, sample=dict))


@pytest.fixture
def decided(planted):
    return replace(leading(planted.fit()), decisions=Decisions(1e5, REACHES, OUTLOOK, 0.0529), backtest=BACKTEST)


def test_targets_budget_and_detectable_difference_in_words(decided):
    assert decisions.sentences(decided) == (
        "The mean@16 reaches 0.600 with probability >99%, at 26.6k GPU-hours (90% interval 24.6k to 28.5k GPU-hours);"
        " within the budget with probability >99%.",
        "The mean@16 reaches 0.630 with probability 86%, at 71.9k GPU-hours (90% interval 48.5k GPU-hours to never);"
        " within the budget with probability 72%.",
        "The mean@16 reaches 0.700 with probability <1%; within the budget with probability <1%.",
        "Stop: from 46.6k to 100k GPU-hours the mean@16 gains 0.011 (90% interval 0.007 to 0.016), more than 0.020 with probability 1%;"
        " at its end, 0.004 (90% interval 0.002 to 0.008) are left to the ceiling.",
        "One run of each of two recipes, known as well as this one, would show ceilings that differ by 0.053 or more.",
    )
    assert decisions.targets(decided).rows[2] == ("0.700", "<1%", "never, or not known", "never", "<1%")


def test_a_target_below_the_start_is_reached_from_there(decided):
    at_once = replace(decided, decisions=Decisions(reaches=(Reach(0.3, 1.0, Estimate(0.0, 0.0, 0.0, unit="compute")),)))
    assert decisions.sentences(at_once) == ("The mean@16 reaches 0.300 with probability >99%, from the start.",)
    assert decisions.targets(at_once).rows == (("0.300", ">99%", "from the start", "", ""),)


def test_what_leans_on_the_prior_says_so(planted):
    open_end = Reach(0.7, 0.4, Estimate(None, 9e4, NEVER, identified=False, unit="compute"))
    left = replace(OUTLOOK, left=Estimate(None, 0.01, 0.4, identified=False), verdict=Verdict.CONTINUE)
    first, second = decisions.sentences(replace(leading(planted.unbounded_fit()), decisions=Decisions(1e5, (open_end,), left)))
    assert first.endswith(
        "with probability 40%. These points do not bound the ceiling: it leans on taking every ceiling for equally likely beforehand."
    )
    assert second.endswith("how much is left at its end is not known, as these points do not bound the ceiling (0.010 or more).")


def test_f1_nothing_follows_from_a_flat_curve_and_nothing_is_said_unasked(planted):
    assert decisions.sentences(planted.fit()) == decisions.backtest_sentences(planted.fit()) == ()
    flat = replace(planted.unanswered_fit(Status.FLAT), decisions=Decisions())
    assert decisions.sentences(flat) == ("Nothing follows for a target or a budget: the curve is flat.",)
    published = replace(planted.fit_without_intervals(), decisions=Decisions())
    assert decisions.sentences(published) == ("Nothing follows for a target or a budget: the published procedure gives no intervals.",)


def test_a_budget_that_is_spent_is_said(planted):
    (sentence,) = decisions.sentences(replace(leading(planted.fit()), decisions=Decisions(40_000.0)))
    assert sentence == "The budget of 40k GPU-hours is spent: the last point lies at 50k GPU-hours."


def test_prefixes_that_all_have_one_ceiling_without_an_interval_are_drawn(planted):
    """As the published procedure answers, whose ceilings lie on a grid."""
    tested = Backtest(0.6, 0.02, tuple(replace(prefix(share, 0.0), A=Estimate(0.6, 0.6, 0.6)) for share in (0.2, 0.4, 0.6, 0.8)))
    stream = io.StringIO()
    print_fit(replace(planted.fit(), backtest=tested), Console(file=stream, width=80))
    assert stream.getvalue().partition("ceiling A\n")[2].count("●") >= 4


def test_the_backtest_in_words(decided, planted):
    assert decisions.backtest_sentences(decided) == (
        "The points up to 20k GPU-hours (20% of the compute) would have predicted the end, 0.639, within 0.020, as all longer prefixes do;"
        " the ceiling is bounded from 20k GPU-hours (20% of the compute) on.",
    )
    missed = replace(planted.fit(), backtest=Backtest(0.639, 0.02, (prefix(0.5, 0.03),)))
    assert decisions.backtest_sentences(missed) == ("No shorter run would have predicted the end, 0.639, within 0.020.",)
    short = replace(planted.fit(), backtest=Backtest(None, 0.02, ()))
    assert decisions.backtest_sentences(short) == ("No part of these points comes before their end: there is nothing to backtest.",)
    assert decisions.prefixes(decided).rows[0] == (
        "10k GPU-hours",
        "10%",
        "3",
        "ceiling not bounded",
        "not identified",
        "0.620 to 0.660",
        "0.719",
        "0.080",
    )


@pytest.mark.parametrize(("encoding", "sign"), [("utf-8", "●"), ("ascii", "o")])
def test_the_terminal_has_sentences_tables_and_the_plot_of_ceilings(decided, encoding, sign):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    print_fit(decided, Console(file=stream, width=120, highlight=False))
    stream.flush()
    text = raw.getvalue().decode(encoding)
    for part in (
        "Stop: from 46.6k",
        "Targets",
        "What shorter runs would have said",
        "share of the compute, logarithmic",
        f"{sign} ceiling   ",
    ):
        assert part in text


def test_the_page_has_them_too_and_the_document_is_finite(decided):
    html = render_html([decided], title="Report", written=date(2026, 1, 31))
    for part in ("Stop: from 46.6k", "Targets", 'data-plot="ceilings"', '"ceilings":{"share":[0.1,0.2,0.5,0.8]'):
        assert part in html
    (curve,) = to_document([decided])["curves"]
    assert curve["decisions"]["targets"][1]["compute"] == {
        "value": 71_900.0,
        "low": 48_500.0,
        "high": None,
        "identified": True,
        "source": "fitted",
    }
    assert (curve["decisions"]["outlook"]["verdict"], curve["decisions"]["detectable_difference"]) == ("stop", 0.0529)
    assert curve["backtest"]["enough"]["share"] == 0.2
