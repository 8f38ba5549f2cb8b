"""The pruner in real Optuna studies."""

import math

import pytest

from scalerl.core.errors import UsageError
from scalerl.core.units import TOKENS
from scalerl.live import StoppingRule
from tests.live.curves import reward

optuna = pytest.importorskip("optuna", reason="Optuna is not installed")

from scalerl.live import ForecastPruner  # noqa: E402  (needs Optuna)

BUDGET = 60
CEILINGS = (0.70, 0.40, 0.75, 0.15)
"""Of the trials in turn: the second and the last have no chance against the first."""


def run(pruner, *, ceilings=CEILINGS, direction="maximize", scale=1.0, every=2):
    """A finished study and, by trial, the steps that were run."""
    steps_of = {}

    def objective(trial):
        A = ceilings[trial.number]
        for step in range(0, BUDGET + 1, every):
            steps_of[trial.number] = step
            value = scale * reward(step, A=A, R0=min(0.1, A))
            trial.report(value, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    study = optuna.create_study(direction=direction, pruner=pruner)
    study.optimize(objective, n_trials=len(ceilings))
    return study, steps_of


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.INFO)
    optuna.logging.disable_default_handler()
    optuna.logging.enable_propagation()
    yield
    optuna.logging.disable_propagation()
    optuna.logging.enable_default_handler()


def test_a_trial_that_will_not_reach_the_best_one_is_pruned_and_told_why(caplog):
    pruner = ForecastPruner(budget=BUDGET)
    study, steps_of = run(pruner)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "PRUNED", "COMPLETE", "PRUNED"]
    assert steps_of[1] <= BUDGET / 2
    assert study.best_trial.number == 2
    lines = [record.message for record in caplog.records if "ends early" in record.message]
    assert len(lines) == 2
    assert lines[0].startswith(f"Trial 1 ends early: reward after {steps_of[1]} steps: ceiling")
    assert lines[0].endswith("there with probability 0.00: stop.")
    assert pruner.prospects[1].stops
    assert not pruner.prospects[2].stops


def test_a_target_needs_no_completed_trial():
    study, steps_of = run(ForecastPruner(budget=BUDGET, target=0.65), ceilings=(0.4,))
    assert study.trials[0].state.name == "PRUNED"
    assert steps_of[0] <= BUDGET / 2


def test_a_target_that_every_trial_reaches_prunes_none():
    study, _ = run(ForecastPruner(budget=BUDGET, target=0.1), ceilings=(0.4, 0.7), every=4)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE"]


def test_rewards_in_percent_need_their_bounds():
    study, _ = run(ForecastPruner(budget=BUDGET, bounds=(-5.0, 100.0)), ceilings=(0.7, 0.4), scale=100.0)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "PRUNED"]
    with pytest.warns(RuntimeWarning, match=r"no forecast for trial 1: rewards span .* give the least and the largest"):
        study, _ = run(ForecastPruner(budget=BUDGET), ceilings=(0.7, 0.4), scale=100.0)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE"]


def test_f4_a_loss_is_refused_in_one_sentence():
    with pytest.raises(UsageError, match=r"^optuna.create_study: a value to be minimised has no ceiling to forecast; report a bounded"):
        run(ForecastPruner(budget=BUDGET), direction="minimize")


def test_steps_may_count_anything_and_reports_may_be_nan():
    pruner = ForecastPruner(budget=60_000, target=0.65, axis=TOKENS, rule=StoppingRule(alpha=0.1, min_points=10))

    def objective(trial):
        for step in range(1, 61):
            trial.report(math.nan if step == 5 else reward(step, A=0.4), 1000 * step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return 0.0

    study = optuna.create_study(direction="maximize", pruner=pruner)
    study.optimize(objective, n_trials=1)
    assert study.trials[0].state.name == "PRUNED"
    assert "tokens" in str(pruner.prospects[0])
    assert len(pruner.prospects[0].answer.curve) == len(study.trials[0].intermediate_values) - 1


@pytest.mark.parametrize(("returned", "said"), [(lambda value: 100.0 * value, r"[67]\d\.\d+"), (lambda value: math.inf, "inf")])
def test_a_best_value_that_is_no_reward_prunes_nobody(returned, said):
    """An objective that returns percentages of what it reports would be a target that no trial reaches."""

    def objective(trial):
        for step in range(0, BUDGET + 1, 4):
            value = reward(step, A=0.72)
            trial.report(value, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return returned(value)

    study = optuna.create_study(direction="maximize", pruner=ForecastPruner(budget=BUDGET))
    with pytest.warns(RuntimeWarning, match=rf"no forecast for trial 1: the reward to be reached, {said}, is outside 0 .. 1; give targets"):
        study.optimize(objective, n_trials=2)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE"]


def test_a_fault_of_the_forecast_ends_no_trial(monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("as planted")

    monkeypatch.setattr("scalerl.live.rule.fit", broken)
    with pytest.warns(RuntimeWarning, match="no forecast for trial 0: ZeroDivisionError: as planted"):
        study, _ = run(ForecastPruner(budget=BUDGET, target=0.6), ceilings=(0.4,))
    assert study.trials[0].state.name == "COMPLETE"


@pytest.mark.parametrize(("aims", "message"), [({"budget": math.nan}, "nan is no budget"), ({"target": 70.0}, "70, is outside 0 .. 1")])
def test_aims_that_would_prune_every_trial_are_refused_at_once(aims, message):
    with pytest.raises(UsageError, match=message):
        ForecastPruner(**{"budget": BUDGET, **aims})
