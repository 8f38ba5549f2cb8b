"""`scalerl compare`: curves become recipes by seed columns and patterns, and what different tasks measured is compared apart."""

import json
from itertools import product

import numpy as np
import pytest
from typer.testing import CliRunner

from scalerl.cli import compare, fit
from scalerl.core.errors import UsageError
from scalerl.testing.synthetic_run import write_run

CEILINGS = {"high": 0.70, "low": 0.55}
COMPUTE = np.linspace(10.0, 300.0, 20)


def reward(A, *, seed=0, C_mid=30.0):
    return 0.3 + (A + 0.004 * seed - 0.3) / (1.0 + (C_mid / COMPUTE) ** 1.8) + 0.002 * np.resize([1.0, -0.6, 0.2, -0.9, 0.5], COMPUTE.size)


def write_csv(path, runs, header):
    """`runs`: (labels, rewards) of each run."""
    path.parent.mkdir(exist_ok=True)
    rows = [
        ",".join((*labels, f"{C:g}", *(f"{y:.4f}" for y in ys)))
        for labels, columns in runs
        for C, *ys in zip(COMPUTE, *columns, strict=True)
    ]
    path.write_text("\n".join([header, *rows]))
    return path


@pytest.fixture
def sweep(tmp_path):
    """Two recipes of three seeds each in one log."""
    runs = [((name, str(seed)), [reward(A, seed=seed)]) for (name, A), seed in product(CEILINGS.items(), range(3))]
    return write_csv(tmp_path / "sweep.csv", runs, "loss,seed,gpu_hours,pass_rate")


def call(*arguments, verb=compare):
    return CliRunner().invoke(verb.app, [str(argument) for argument in arguments])


def domains(*arguments):
    result = call(*arguments, "--r0", "0.3", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["comparison"]["domains"]


def test_a_seed_column_makes_recipes_of_runs(sweep):
    (domain,) = domains(sweep, "--by", "loss", "--seeds", "seed")
    assert [(arm["name"], arm["runs"]) for arm in domain["arms"]] == [("high", 3), ("low", 3)]
    for arm in domain["arms"]:
        assert arm["A"]["low"] < CEILINGS[arm["name"]] + 0.004 < arm["A"]["high"]
    (pair,) = domain["pairs"]
    assert pair["higher"] > 0.99
    assert pair["difference"]["low"] < 0.15 < pair["difference"]["high"]


def test_patterns_gather_runs_and_the_rest_stand_alone(sweep):
    (domain,) = domains(sweep, "--by", "loss,seed", "--arm", "H=high*", "--arm", "first=low / seed=[01]")
    assert {(arm["name"], arm["runs"]) for arm in domain["arms"]} == {("H", 3), ("first", 2), ("low / seed=2", 1)}


def test_one_recipe_of_many_seeds(sweep):
    (domain,) = domains(sweep, "--where", "loss=high", "--seeds", "seed")
    assert [(arm["name"], arm["runs"]) for arm in domain["arms"]] == [("sweep", 3)]
    assert domain["pairs"] == []


def test_a_log_for_each_run_by_its_path(tmp_path):
    logs = [
        write_csv(tmp_path / f"{name}-{seed}" / "log.csv", [((), [reward(A, seed=seed)])], "gpu_hours,pass_rate")
        for (name, A), seed in product(CEILINGS.items(), range(2))
    ]
    (domain,) = domains(*logs, "--arm", "high=*high-*")
    assert {(arm["name"], arm["runs"]) for arm in domain["arms"]} == {("high", 2), (str(logs[2]), 1), (str(logs[3]), 1)}


def test_data_sets_are_compared_apart_and_never_pooled(tmp_path):
    logs = [
        write_csv(
            tmp_path / f"{name}.csv", [((), [reward(A), reward(A - 0.1)])], "gpu_hours,val-core/math/acc/mean@1,val-core/code/acc/mean@1"
        )
        for name, A in CEILINGS.items()
    ]
    found = domains(*logs, "--x", "gpu_hours")
    assert {domain["domain"] for domain in found} == {"math", "code"}
    for domain in found:
        lower = 0.0 if domain["domain"] == "math" else 0.1
        assert [(arm["name"], arm["runs"]) for arm in domain["arms"]] == [("high", 1), ("low", 1)]
        assert domain["arms"][0]["A"]["value"] == pytest.approx(0.70 - lower, abs=0.01)


def test_runs_of_our_own_are_named_by_folder_and_compared_by_task(tmp_path):
    for name, ceiling in (("a", 0.85), ("b", 0.85)):
        write_run(tmp_path / name, ceiling=ceiling)
    result = call(tmp_path / "a", tmp_path / "b", "--json")
    (domain,) = json.loads(result.stdout)["comparison"]["domains"]
    assert (result.exit_code, domain["domain"], {arm["name"] for arm in domain["arms"]}) == (0, "chain", {"a", "b"})
    (pair,) = domain["pairs"]
    assert pair["tie"]["faster"] == pytest.approx(0.5, abs=0.1)


def test_words_a_range_and_the_page(sweep, tmp_path):
    page = tmp_path / "report.html"
    result = call(sweep, "--by", "loss", "--seeds", "seed", "--r0", "0.3", "--within", "20:1k", "--report", page)
    assert result.exit_code == 0
    assert "high ends higher than low, by 0.15" in result.stdout.replace("\n", " ")
    assert "do not cross between 20 and 1000 GPU-hours" in result.stdout.replace("\n", " ")
    assert "All curves" in result.stdout
    assert "Recipes side by side" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--where", "loss=high", "--where", "seed=0"), "high / 0: one run alone has nothing to be compared with"),
        (("--by", "seed", "--seeds", "loss"), "--seeds: 'loss' holds no numbers; gather the runs of a recipe with --arm NAME=PATTERN"),
        (("--by", "loss,seed", "--arm", "H"), "--arm: 'H' names no recipe; write NAME=PATTERN, for example"),
        (
            ("--by", "loss", "--seeds", "seed", "--arm", "H=none*"),
            "--arm: no run is left that matches 'none*'; write a pattern of these names",
        ),
        (("--by", "loss,seed", "--within", "5"), "--within: '5' is no window"),
        (("--by", "loss,seed", "--at", ","), "--at: ',' lists nothing"),
    ],
)
def test_a_wrong_option_is_one_sentence(sweep, arguments, message):
    result = call(sweep, *arguments)
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)


def test_a_log_given_twice_is_no_second_seed(sweep):
    result = call(sweep, sweep, "--where", "loss=high", "--where", "seed=0", "--r0", "0.3")
    assert isinstance(result.exception, UsageError)
    assert "is there twice: its points are those of another run; name every run once" in str(result.exception)


def test_no_ceiling_leaves_with_4(tmp_path):
    short = write_csv(tmp_path / "short.csv", [((name,), [np.full(COMPUTE.size, 0.5)]) for name in "ab"], "run,gpu_hours,pass_rate")
    result = call(short, "--by", "run", "--json")
    assert result.exit_code == 4
    assert json.loads(result.stdout)["comparison"]["domains"][0]["pairs"] == []


# The same questions of one fit.


def test_targets_a_budget_and_a_backtest_of_one_fit(sweep):
    arguments = (sweep, "--where", "loss=high", "--where", "seed=0", "--r0", "0.3")
    result = call(*arguments, "--reach", "0.6, 0.9", "--budget", "2k", "--backtest", "--json", verb=fit)
    assert result.exit_code == 0
    (curve,) = json.loads(result.stdout)["curves"]
    first, second = curve["decisions"]["targets"]
    assert first["compute"]["value"] == pytest.approx(30.0 * (0.4 / 0.3 - 1.0) ** (-1.0 / 1.8), rel=0.05)
    assert (second["probability"], second["compute"]["value"], second["compute"]["low"]) == (0.0, None, None)
    assert curve["decisions"]["outlook"]["verdict"] == "stop"
    assert curve["backtest"]["enough"]["share"] < 0.6
    unasked = json.loads(call(*arguments, "--json", verb=fit).stdout)["curves"][0]
    assert (unasked["decisions"], unasked["backtest"]) == (None, None)


def refuse(constant):
    raise AssertionError(f"{constant} is no JSON")


def test_no_face_writes_what_json_does_not_know(tmp_path):
    """A climb that has not bent, a flat curve and one of two points: infinite bounds, unknown values and no values at all."""
    noise = np.resize([1.0, -1.0, 0.5, -0.5, 0.3], COMPUTE.size)
    climb = 0.3 + 0.3 / (1.0 + (900.0 / COMPUTE) ** 1.5) + 0.002 * noise
    log = write_csv(
        tmp_path / "log.csv",
        [((name,), [rewards]) for name, rewards in (("a", climb), ("b", climb**1.2), ("flat", 0.5 + 0.004 * noise))],
        "run,gpu_hours,pass_rate",
    )
    log.write_text(log.read_text() + "\nshort,10,0.3\nshort,20,0.4\n")
    asked = call(log, "--by", "run", "--reach", "0.31,0.95", "--budget", "9k", "--at", "9k", "--backtest", "--json", verb=fit)
    curves = {curve["name"]: curve for curve in json.loads(asked.stdout, parse_constant=refuse)["curves"]}
    beyond = curves["a"]["decisions"]["targets"][1]["compute"]
    assert (beyond["value"], beyond["high"]) == (None, None)
    assert (curves["short"]["A"]["value"], curves["short"]["rmse"], curves["short"]["B"]["high"]) == (None, None, None)
    (domain,) = json.loads(call(log, "--by", "run", "--json").stdout, parse_constant=refuse)["comparison"]["domains"]
    assert {arm["name"]: arm["A"] is None for arm in domain["arms"]} == {"a": False, "b": False, "flat": True, "short": True}
    listed = json.loads(call(log, "--list", "--json", verb=fit).stdout, parse_constant=refuse)
    assert list(listed) == [str(log)]


@pytest.mark.parametrize("nothing", [",", "", " , "])
def test_no_target_is_one_sentence(sweep, nothing):
    result = call(sweep, "--by", "loss,seed", "--reach", nothing, verb=fit)
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == f"--reach: '{nothing}' lists nothing; write for example 0.6,0.65, or leave it out"
    assert result.stdout == ""


def test_a_target_that_is_no_number_is_one_sentence(sweep):
    result = call(sweep, "--by", "loss,seed", "--target", "half", verb=fit)
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == "--reach: 'half' is no reward; write numbers, for example 0.6,0.65"
