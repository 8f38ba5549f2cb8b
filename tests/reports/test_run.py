"""The report of a run: its counts, the ceiling beside the proved one, and the forecast from the first half beside what came."""

import io
import json
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from msgspec import structs
from rich.console import Console

from scalerl.core.units import FLOPS
from scalerl.curves import fit
from scalerl.curves.result import Status
from scalerl.importers import read_curves
from scalerl.records.curve import Curve
from scalerl.reports import RunReport, print_run
from scalerl.reports import run as run_report
from scalerl.reports.document import to_document
from scalerl.reports.html import render_html
from scalerl.testing.synthetic_run import CEILING, pass_rate, write_run
from tests.reports.test_html import Page

DAY = date(2026, 1, 31)


def report_of(run):
    return RunReport.of(run, [fit(curve) for curve in read_curves(run.path)])


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return report_of(write_run(tmp_path_factory.mktemp("runs") / "mine", num_steps=60, resume_at=33))


def cells(table):
    return {row[0]: row[1:] for row in table.rows}


def test_the_counts_are_those_that_were_planted(report):
    counted = {what: text for what, (text,) in cells(run_report.counts(report.summary)).items()}
    assert counted == {
        "steps": "60, 60 of them updates",
        "groups trained": "180",
        "groups filtered by zero_variance": "60",
        "groups dropped, failed, cancelled": "0, 0, 0",
        "prompts left out by No-Positive-Resampling": "6",
        "completions interrupted": "60 of 960 (6.2%)",
        "completions cut off at their budget": "60 of 960 (6.2%)",
        "completions whose grading failed": "0 of 960 (0.0%)",
        "trained completions over two versions or more": "236 of 720 (32.8%)",
        "age of trained groups, in versions": "mean 0.33, p95 1, largest 1; at most 8 is allowed",
    }


def test_the_ceiling_is_held_against_the_proved_one(report):
    ((_, check),) = report.ceiling_checks()
    assert (check.proved, check.holds) == (CEILING, True)
    assert check.half_width < 0.05
    assert "holds the ceiling that the task proves, 0.850." in report.sentences()[1]


def test_the_first_half_forecasts_the_last_evaluation(report):
    (half,) = report.half_ways
    assert (len(half.fit.fitted), half.fit.window) == (11, (0.0, 2.8e11))  # 28 steps: the evaluation before half of 60
    assert half.measured == pytest.approx(pass_rate(60), abs=5e-4)
    assert (half.holds, half.half_width < 0.08) == (True, True)
    assert half.forecast.compute == 6e11
    assert "the last evaluation; 0.7" in report.sentences()[2]


def test_a_flat_curves_level_is_not_held_against_the_proved_ceiling(report):
    flat = replace(report, fits=tuple(replace(one, status=Status.FLAT) for one in report.fits))
    assert flat.ceiling_checks() == []
    assert not [sentence for sentence in flat.sentences() if "proves" in sentence]


def test_the_half_is_fitted_with_the_law_asked_for_though_a_constant_explains_the_whole():
    compute = np.arange(21.0) * 1e9
    reward = np.where(compute > 0.0, 0.6, 0.2) + 0.005 * np.resize([1.0, -1.0, 0.5], 21)
    whole = fit(Curve.of("chain", FLOPS, compute, reward))
    assert (whole.status, whole.best.law) == (Status.SATURATED, "constant")
    half = run_report.half_way(whole)
    assert (half.fit.status, half.fit.alternatives[0].law) == (Status.SATURATED, "sigmoid")
    given = run_report.half_way(fit(whole.curve, law="constant"))
    assert (given.fit.status, given.fit.best.law) == (Status.FLAT, "constant")


def test_digits_are_few_and_whole_numbers_whole():
    assert [run_report._short(value) for value in (0.0, 0.0625, 6.4375, 99.4, 99.6, 801.0, 1.9e-6, 12_345.0)] == [
        "0",
        "0.062",
        "6.4",
        "99",
        "100",
        "801",
        "1.9e-6",
        "12.3k",
    ]


def test_a_miss_is_said(report):
    (half,) = report.half_ways
    missed = type(half)(half.fit, half.forecast, measured=0.999)
    assert "0.999 came, outside the 90% interval." in run_report.half_way_in_words(missed)
    ((one, check),) = report.ceiling_checks()
    assert "does not hold the ceiling" in run_report.ceiling_in_words(type(check)(check.estimated, 0.99), one)


def test_steps_that_a_resume_repeated_are_shown_once(report):
    assert [row.step for row in report.summary.rows] == list(range(1, 61))
    assert "resumed 1 time." in report.sentences()[0]
    assert report.summary.num_resumes == 1


def test_alarms_before_the_checkpoint_are_kept_and_repeated_ones_are_not(tmp_path):
    early = report_of(write_run(tmp_path / "early", num_steps=12, resume_at=12)).summary
    late = report_of(write_run(tmp_path / "late", num_steps=12, resume_at=10)).summary
    assert [alarm.step for alarm in early.alarms] == [alarm.step for alarm in late.alarms] == [10]


def test_long_series_are_averaged_piece_by_piece(monkeypatch, report):
    monkeypatch.setattr(run_report, "_MOST_POINTS", 7)
    left_out = next(one for one in run_report.series(report.summary) if one.title == "prompts left out")
    assert left_out.steps == (9, 18, 27, 36, 45, 54, 60)
    assert left_out.values[0] == 0.0
    assert left_out.values[-1] == pytest.approx((5 * 5 + 6) / 6)


def test_a_run_without_anything_yet_is_no_error(tmp_path):
    report = report_of(write_run(tmp_path / "run", num_steps=1))
    assert report.half_ways == ()
    assert report.ceiling_checks() == []
    assert render_html(report.fits, title="t", written=DAY, runs=[report])


def test_the_document_holds_what_the_page_says(report):
    document = json.loads(json.dumps(to_document(report.fits, runs=[report]), allow_nan=False))
    (run,) = document["runs"]
    assert run["counts"]["filtered"] == {"zero_variance": 60}
    assert run["counts"]["age_largest"] == 1
    assert run["ceiling_checks"][0]["holds"] is True
    assert run["half_way"][0]["forecast"]["compute"] == 6e11
    assert run["ledger"]["num_steps"] == 60
    assert run["alarms"] == [{"step": 10, "alarm": "truncation", "value": 0.125, "limit": 0.1, "stops": False}]
    assert "runs" not in to_document(report.fits)


def test_the_page_has_the_run_its_curve_and_the_half_way_forecast(report):
    page = Page(render_html(report.fits, title="Report", written=DAY, runs=[report]))
    text = " ".join(page.text.split())
    for part in (
        *report.sentences(),
        "trained completions over two versions or more",
        "236 of 720",
        "Where 3",
        "forecast from the first half",
    ):
        assert part in text
    assert [plot["proved"] for plot in page.plots] == [CEILING, None]
    (drawn,) = json.loads(page.scripts[1])
    assert drawn["ages"] == {"x": [0, 1], "y": [121, 59]}
    assert len(drawn["steps"]) == 15
    assert drawn["costs"]["y"][0] == "generate"
    assert max(page.plots[0]["rewards"]) >= CEILING
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_a_run_called_anything_stays_text(tmp_path):
    run = write_run(tmp_path / "<img src=x onerror=alert(1)>", num_steps=8, ends="<b>\x1b[31m")
    report = report_of(run)
    page = Page(render_html(report.fits, title="t", written=DAY, runs=[report]))
    assert not [tag for tag, _ in page.elements if tag in ("img", "b")]
    assert "\x1b" not in page.text


@pytest.mark.parametrize(("width", "encoding"), [(60, "ascii"), (110, "utf-8")])
def test_the_terminal_says_the_same(report, width, encoding):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    print_run(report, Console(file=stream, width=width, highlight=False))
    stream.flush()
    text = stream.buffer.getvalue().decode(encoding)
    assert max(map(len, text.splitlines())) <= width
    for part in ("Run mine", "236 of 720", "effective", "idle: buffer full", "truncation"):
        assert part in text
    # 60 steps in 16 bars: no line breaks them.
    assert any("_" in line and "@" in line and len(line.split()[-1]) == 15 for line in text.splitlines()) or encoding != "ascii"


def test_the_half_is_fitted_with_the_window_and_the_free_start_of_the_whole(tmp_path):
    write_run(tmp_path / "run", num_steps=120)
    (curve,) = read_curves(tmp_path / "run")
    early = float(curve.compute[3])
    half = run_report.half_way(fit(curve, r0="free", window=(early, np.inf)))
    assert half is not None
    assert half.fit.window[0] == early
    assert half.fit.parameters["R0"].source == "fitted"


def with_noise(summary, *measured):
    """The summary with so many rows of (noise, within, signal)."""
    names = ("gradient_noise", "gradient_noise_within", "gradient_signal")
    rows = summary.rows[: len(measured)]
    told = zip(rows, measured, strict=True)
    rows = [structs.replace(row, num_trained=6, trainer={**row.trainer, **dict(zip(names, values, strict=True))}) for row, values in told]
    return replace(summary, rows=(*rows, *summary.rows[len(measured) :]))


@pytest.mark.parametrize(
    ("measured", "told"),
    [
        ([(4.0, 1.0, 2.0), (2.0, 1.0, 1.0)], "noise equals signal at 12 prompts: a larger batch would help; 33% of the noise"),
        ([(1.0, 0.5, 3.0)], "Over 1 measured step of 6 trained prompts noise equals signal at 2 prompts: a larger batch buys little; 50%"),
        ([(1.0, 0.5, -0.1)], "the gradient cannot be told from its noise: a larger batch would help; 50%"),
    ],
)
def test_whether_a_larger_batch_would_help_is_said_where_it_was_measured(report, measured, told):
    (sentence,) = run_report.larger_batch(with_noise(report.summary, *measured))
    assert told in sentence
    assert run_report.larger_batch(report.summary) == []
