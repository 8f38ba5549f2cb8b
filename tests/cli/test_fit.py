"""`scalerl fit` and `scalerl report`: logs in, data on stdout, talk on stderr, the exit code says whether there is an answer."""

import json

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from scalerl.cli import _curve_options, fit, report
from scalerl.core.errors import DataError, OccupiedError, UnitError, UnknownNameError, UsageError

A, B, C_MID, R0 = 0.645, 1.7, 10_909.0, 0.40
"""The 100k GPU-hour run printed in arXiv 2510.13786, figure 1."""


def write_log(path, *, compute, runs=("a",)):
    noise = 0.003 * np.resize([1.0, -0.6, 0.2, -0.9, 0.5], len(compute))
    rows = [f"{run},{C},{R0 + (A - R0) / (1 + (C_MID / C) ** B) + e:.4f}" for run in runs for C, e in zip(compute, noise, strict=True)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["run,gpu_hours,pass_rate", *rows]))
    return path


@pytest.fixture
def log(tmp_path):
    """25 evaluations up to 98k GPU-hours."""
    return write_log(tmp_path / "run.csv", compute=np.linspace(2e3, 98e3, 25))


@pytest.fixture
def short_log(tmp_path):
    """Two evaluations: no law can be fitted."""
    return write_log(tmp_path / "short.csv", compute=np.array([1e3, 2e3]))


def call(verb, *arguments):
    return CliRunner().invoke(verb.app, [str(argument) for argument in arguments])


def test_json_is_the_contract_and_finds_the_planted_ceiling(log):
    result = call(fit, log, "--r0", R0, "--window", "1.5k:50k", "--at", "100k, 200k", "--level", "0.95", "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert (document["axis"], document["level"]) == ({"name": "device_hours", "unit": "GPU-hours"}, 0.95)
    (curve,) = document["curves"]
    assert curve["status"] == "ok"
    assert curve["window"] == [2e3, 50e3]
    assert curve["A"]["low"] < A < curve["A"]["high"]
    assert curve["R0"] == {"value": R0, "low": R0, "high": R0, "identified": True, "source": "given"}
    assert [forecast["compute"] for forecast in curve["forecasts"]] == [100e3, 200e3]


def test_words_and_a_plot_without_json(log):
    result = call(fit, log, "--r0", R0)
    assert result.exit_code == 0
    assert "climbs towards a ceiling of 0.6" in result.stdout
    assert "compute (GPU-hours), logarithmic" in result.stdout
    assert result.stderr == ""


def test_no_answer_leaves_with_4_and_strict_takes_one_for_all(log, short_log):
    assert call(fit, short_log, "--json").exit_code == 4
    assert call(fit, log, short_log, "--r0", R0, "--json").exit_code == 0
    assert call(fit, log, short_log, "--r0", R0, "--json", "--strict").exit_code == 4


def test_one_curve_for_each_value_of_a_column(tmp_path):
    log = write_log(tmp_path / "two.csv", compute=np.linspace(2e3, 98e3, 12), runs=("left", "right"))
    curves = json.loads(call(fit, log, "--by", "run", "--r0", R0, "--json").stdout)["curves"]
    assert [curve["name"] for curve in curves] == ["left", "right"]
    (curve,) = json.loads(call(fit, log, "--where", "run=right", "--r0", R0, "--json").stdout)["curves"]
    assert curve["points"] == 12


def test_logs_of_one_name_are_told_apart(tmp_path):
    logs = [write_log(tmp_path / folder / "log.csv", compute=np.array([1e3, 2e3])) for folder in ("one", "two")]
    curves = json.loads(call(fit, *logs, "--json").stdout)["curves"]
    assert [curve["name"] for curve in curves] == [f"{log}: log" for log in logs]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("--window", "5k"), UsageError, "--window: '5k' is no window; write LOW:HIGH, for example 1.5k:50k"),
        (("--window", "50k:1k"), UsageError, "the smaller amount of compute first"),
        (("--at", "5 tokens"), UnitError, "--at: '5 tokens' is not in GPU-hours; give the amount in GPU-hours"),
        (("--r0", "guess"), UsageError, "guess"),
        (("--law", "sigmoit"), UnknownNameError, "did you mean 'sigmoid'?"),
        (("--level", "90"), UsageError, "level 90 is no probability"),
        (("--x", "gpu_hour"), UnknownNameError, "did you mean 'gpu_hours'?"),
        (("--at", ","), UsageError, "--at: ',' lists nothing; write for example 50k,100k, or leave it out"),
        (("--by", " , "), UsageError, "--by: ' , ' names no column; write COLUMN,..., for example loss,seed"),
    ],
)
def test_a_wrong_option_is_one_sentence(log, arguments, error, message):
    result = call(fit, log, *arguments)
    assert isinstance(result.exception, error)
    assert message in str(result.exception)
    assert result.stdout == ""


def test_an_open_window_reaches_to_the_end(log):
    assert json.loads(call(fit, log, "--window", "50k:", "--r0", R0, "--json").stdout)["curves"][0]["window"] == [50e3, 98e3]
    assert json.loads(call(fit, log, "--window", ":50k", "--r0", R0, "--json").stdout)["curves"][0]["window"] == [2e3, 50e3]


def test_a_missing_log_is_unusable_data(tmp_path):
    result = call(fit, tmp_path / "none.csv")
    assert isinstance(result.exception, DataError)
    assert result.exception.exit_code == 3


def test_the_report_beside_the_data(log, tmp_path):
    page = tmp_path / "report.html"
    result = call(fit, log, "--r0", R0, "--json", "--report", page)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["curves"][0]["status"] == "ok"
    assert result.stderr == f"wrote {page}\n"
    assert "<title>run.csv: what more compute will bring</title>" in page.read_text()


def test_the_verb_report_writes_the_page_and_prints_no_data(log, short_log, tmp_path):
    page = tmp_path / "report.html"
    result = call(report, log, short_log, "-o", page, "--r0", R0, "--title", "Two & one")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"wrote {page}\n")
    assert "<h1>Two &amp; one</h1>" in page.read_text()
    assert call(report, short_log, "-o", page).exit_code == 4


def test_what_is_no_report_is_not_overwritten(short_log):
    before = short_log.read_text()
    assert isinstance(call(report, short_log, "-o", short_log).exception, OccupiedError)
    assert short_log.read_text() == before


def test_both_verbs_take_every_curve_option():
    shared = {parameter.name for parameter in get_command(fit.app).params} & {
        parameter.name for parameter in get_command(report.app).params
    }
    assert {parameter.name for parameter in _curve_options._parameters()} <= shared


def test_list_tells_what_a_log_offers_and_what_would_be_chosen(log):
    result = call(fit, log, "--list")
    assert result.exit_code == 0
    assert "25 rows" in result.stdout
    for part in ("run", "gpu_hours", "pass_rate", "reward: 'pass_rate'", "compute: 'gpu_hours', in GPU-hours"):
        assert part in result.stdout
    assert "ceiling" not in result.stdout


def test_list_is_json_where_that_is_asked_for(log):
    listing = json.loads(call(fit, log, "--list", "--json").stdout)[str(log)]
    facts = {column["name"]: (column["numbers"], column["first"], column["last"]) for column in listing["columns"]}
    assert (listing["rows"], facts["gpu_hours"]) == (25, (25, 2000.0, 98000.0))
