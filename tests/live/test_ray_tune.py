"""The scheduler in a real Ray Tune experiment on this machine."""

import logging
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from scalerl.core.errors import UsageError
from tests.live.curves import reward

ray = pytest.importorskip("ray", reason="Ray is not installed")
tune = pytest.importorskip("ray.tune", reason="Ray Tune is not installed")

from scalerl.live import ForecastScheduler  # noqa: E402  (needs Ray)

BUDGET = 60


def trainable(config):
    for step in range(2, BUDGET + 1, 2):
        tune.report({"reward": config["rewards"][step], "steps": step})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray")
    ray.init(num_cpus=1, num_gpus=0, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20, configure_logging=False)
    yield folder
    ray.shutdown()


def test_a_trial_that_will_not_reach_the_best_one_stops_and_is_told_why(cluster, caplog):
    caplog.set_level(logging.INFO, logger="ray.tune.schedulers.forecast")
    scheduler = ForecastScheduler(budget=BUDGET, time_attr="steps")
    curves = [{step: reward(step, A=A) for step in range(2, BUDGET + 1, 2)} for A in (0.70, 0.40, 0.75)]
    results = tune.Tuner(
        trainable,
        param_space={"rewards": tune.grid_search(curves)},
        tune_config=tune.TuneConfig(metric="reward", mode="max", scheduler=scheduler, max_concurrent_trials=1, reuse_actors=True),
        run_config=tune.RunConfig(storage_path=str(cluster), verbose=0),
    ).fit()
    steps = [result.metrics["steps"] for result in results]
    assert (steps[0], steps[2]) == (BUDGET, BUDGET)
    assert steps[1] <= BUDGET / 2
    assert results.get_best_result().metrics["reward"] == curves[2][BUDGET]
    (line,) = [record.message for record in caplog.records if " stops: " in record.message]
    assert re.search(r"there with probability 0\.0\d: stop\.$", line)
    assert scheduler.debug_string() == "Using the forecasts of scalerl: num_stopped=1."


def test_f4_a_loss_is_refused_in_one_sentence():
    sentence = r"^mode: a value to be minimised has no ceiling to forecast; report a bounded reward"
    with pytest.raises(UsageError, match=sentence):
        ForecastScheduler(budget=BUDGET, mode="min")
    with pytest.raises(UsageError, match=sentence):
        ForecastScheduler(budget=BUDGET).set_search_properties("reward", "min")


def test_metric_and_mode_are_said_once():
    scheduler = ForecastScheduler(budget=BUDGET, metric="reward", mode="max")
    assert not scheduler.set_search_properties(None, "max")
    assert not scheduler.set_search_properties("reward", None)
    assert scheduler.set_search_properties(None, None)
    assert scheduler.metric == "reward"


def decided(scheduler, name, *, A, results=None, last=None):
    """The first decision that is no CONTINUE, or that the trial ended; `results` and `last` replace what it reports."""
    trial = SimpleNamespace(trial_id=name)
    for step in range(2, BUDGET + 1, 2):
        decision = scheduler.on_trial_result(None, trial, {"training_iteration": step, "reward": reward(step, A=A), **(results or {})})
        if decision != "CONTINUE":
            return decision
    scheduler.on_trial_complete(None, trial, {"reward": reward(BUDGET, A=A)} if last is None else last)
    return "COMPLETE"


@pytest.mark.parametrize("last", [{"reward": math.nan}, {"reward": math.inf}, {"reward": None}, {}], ids=str)
@pytest.mark.filterwarnings("ignore:no forecast for trial a:RuntimeWarning")
def test_a_trial_that_ends_without_a_reward_is_no_target(last):
    """The largest of NaN and others is NaN, which no reward reaches."""
    scheduler = ForecastScheduler(budget=BUDGET, metric="reward", mode="max")
    assert [decided(scheduler, "a", A=0.7, last=last), decided(scheduler, "b", A=0.4)] == ["COMPLETE", "COMPLETE"]
    assert [decided(scheduler, "c", A=0.7), decided(scheduler, "d", A=0.3)] == ["COMPLETE", "STOP"]


@pytest.mark.parametrize("value", [None, math.nan], ids=str)
def test_missing_rewards_are_left_out(value):
    scheduler = ForecastScheduler(budget=BUDGET, metric="reward", mode="max", target=0.9)
    assert decided(scheduler, "a", A=0.4, results={"reward": value}) == "COMPLETE"
    assert decided(scheduler, "b", A=0.4, results={"other": np.float32(1.0)}) == "STOP"


def test_what_is_no_reward_and_what_counts_no_compute_is_told_and_stops_nothing():
    scheduler = ForecastScheduler(budget=BUDGET, metric="reward", mode="max", target=0.9)
    with pytest.warns(RuntimeWarning, match="no forecast for trial a: TypeError: must be real number, not str"):
        assert decided(scheduler, "a", A=0.4, results={"reward": "high"}) == "COMPLETE"
    scheduler = ForecastScheduler(budget=BUDGET, metric="reward", mode="max", target=0.9, time_attr="tokens")
    with pytest.warns(RuntimeWarning, match="no forecast for trial a: it reports no 'tokens'; name the result that counts compute"):
        assert decided(scheduler, "a", A=0.4) == "COMPLETE"
