"""Studies of planted trials: what does stopping by forecasts save, and what does it cost, beside Optuna's median pruner?

    python benchmarks/live_stopping.py [STUDIES]

Each study has 8 trials of 24 evaluations, one base and one grader (R0 = .1, noise .01), and laws that differ: A ~ U(.3, .9),
B ~ logU(.8, 3), C_mid ~ logU(.05, .8) of the budget: in half of the studies by chance, in half ("crossing") the higher the
ceiling, the larger C_mid, so that what ends high starts slowly. A trial is stopped wrongly when its law at the budget lies
above that of every completed trial before it.

The last line is {chance_forecast_compute_share, ...}: compute used, how far the best completed law at the budget lies below
the study's best (regret, and the worst of it), and the share of stopped trials that were stopped wrongly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import optuna
from _report import Requirement, finish
from optuna.pruners import BasePruner, MedianPruner, NopPruner

from scalerl.live import ForecastPruner

NUM_TRIALS, BUDGET = 8, 24
R0, NOISE = 0.1, 0.01
PRUNERS: dict[str, Callable[[], BasePruner]] = {
    "none": NopPruner,
    "median": lambda: MedianPruner(n_startup_trials=1, n_warmup_steps=8),
    "forecast": lambda: ForecastPruner(budget=BUDGET, bounds=(-0.1, 1.1)),
}
"""The median waits for as many reports as the forecast, and for as many trials."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one study."""

    compute_share: float
    regret: float
    num_stopped: int
    num_wrong: int


def planted(study: int, *, design: str) -> np.ndarray:
    """(trials, BUDGET + 1) mean rewards from compute 0 to the budget."""
    rng = np.random.default_rng([20_251_013, study])
    A = rng.uniform(0.3, 0.9, (NUM_TRIALS, 1))
    B = np.exp(rng.uniform(np.log(0.8), np.log(3.0), (NUM_TRIALS, 1)))
    C_mid = BUDGET * np.exp(rng.uniform(np.log(0.05), np.log(0.8), (NUM_TRIALS, 1)))
    if design == "crossing":
        C_mid = np.sort(C_mid, axis=0)[A[:, 0].argsort().argsort()]
    compute = np.arange(1, BUDGET + 1)
    return np.concatenate([np.full((NUM_TRIALS, 1), R0), R0 + (A - R0) / (1.0 + (C_mid / compute) ** B)], axis=1)


def run(number: int, pruner: BasePruner, *, design: str) -> Outcome:
    """One study from its first to its last trial."""
    means = planted(number, design=design)
    rewards = means + np.random.default_rng([7, number]).normal(0.0, NOISE, means.shape)

    def objective(trial: optuna.Trial) -> float:
        for step, reward in enumerate(rewards[trial.number]):
            trial.report(reward, step)
            if step < BUDGET and trial.should_prune():
                raise optuna.TrialPruned
        return float(reward)

    study = optuna.create_study(direction="maximize", pruner=pruner)
    study.optimize(objective, n_trials=NUM_TRIALS)
    stopped = [trial.number for trial in study.trials if trial.state is optuna.trial.TrialState.PRUNED]
    completed = [trial.number for trial in study.trials if trial.number not in stopped]
    wrong = [one for one in stopped if means[one, -1] > max(means[other, -1] for other in completed if other < one)]
    steps = sum(trial.last_step or 0 for trial in study.trials)
    regret = float(means[:, -1].max() - max(means[one, -1] for one in completed))
    return Outcome(steps / (NUM_TRIALS * BUDGET), regret, len(stopped), len(wrong))


def figures_of(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """What studies come to under one pruner."""
    stopped, wrong = (sum(getattr(outcome, count) for outcome in outcomes) for count in ("num_stopped", "num_wrong"))
    return {
        "compute_share": float(np.mean([outcome.compute_share for outcome in outcomes])),
        "regret": float(np.mean([outcome.regret for outcome in outcomes])),
        "worst_regret": max(outcome.regret for outcome in outcomes),
        "wrongly_stopped": wrong / max(stopped, 1),
    }


def main(num_studies: int) -> int:
    """Run every study under every pruner, print, judge."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    figures: dict[str, float] = {}
    for design in ("chance", "crossing"):
        for name, make in PRUNERS.items():
            found = figures_of([run(number, make(), design=design) for number in range(num_studies // 2)])
            print(f"{design:8}  {name:8}", *(f"  {key} {value:.3f}" for key, value in found.items()))
            figures |= {f"{design}_{name}_{key}": value for key, value in found.items()}
    requirements = [
        Requirement(f"{key} ({design})", figures[f"{design}_forecast_{key}"], most=most)
        for design in ("chance", "crossing")
        for key, most in (("wrongly_stopped", 0.05), ("regret", 0.005), ("compute_share", 0.8))
    ]
    return finish(requirements, figures)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 40))
