"""An Optuna pruner: a trial ends when its forecast says that it will not reach the best one.

    study = optuna.create_study(direction="maximize", pruner=ForecastPruner(budget=200))
    study.optimize(objective, n_trials=50)     # the objective calls trial.report(reward, step) and trial.should_prune()

Other pruners compare trials at equal steps, and prune what starts slowly; this one compares ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import optuna
from optuna.pruners import BasePruner
from optuna.study import StudyDirection
from optuna.trial import TrialState

from scalerl.core.units import STEPS, Axis
from scalerl.live.rule import Prospect, Search, StoppingRule, harmless, is_due, refusal_to_minimise

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

# A child of Optuna's own logger: what it says appears where Optuna tells of the pruned trial.
_logger = optuna.logging.get_logger("optuna.pruners.forecast")


class ForecastPruner(BasePruner):
    """Prunes a trial whose reward at the budget will, very probably, stay below the best completed trial's."""

    def __init__(
        self,
        *,
        budget: float,
        target: float | None = None,
        axis: Axis = STEPS,
        bounds: tuple[float, float] = (0.0, 1.0),
        rule: StoppingRule | None = None,
    ) -> None:
        """A pruner for one study.

        Args:
            budget: the `step` at which a whole trial ends, in the unit of the steps that are reported.
            target: the reward to be reached, instead of the best completed trial's.
            axis: what the reported steps count.
            bounds: least and largest reward that the grader can give.
            rule: how sure to be.

        Raises:
            UsageError: the budget is no amount, or the target lies outside the bounds.
        """
        self.prospects: dict[int, Prospect] = {}
        """By trial number: what was last said of it, and why it was pruned if it was."""
        self._search = Search(budget, target, axis, bounds, rule or StoppingRule())

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether `trial` should end now.

        Raises:
            UsageError: the study minimises.
        """
        if study.direction is not StudyDirection.MAXIMIZE:
            raise refusal_to_minimise("optuna.create_study")
        num_points = len(trial.intermediate_values)
        if not num_points or not is_due(num_points):
            return False
        with harmless(f"trial {trial.number}"):
            return self._stops(trial, best=_best(study))
        return False

    def _stops(self, trial: FrozenTrial, *, best: float | None) -> bool:
        prospect = self._search.prospect(f"trial {trial.number}", trial.intermediate_values.items(), best=best)
        if prospect is None:
            return False
        self.prospects[trial.number] = prospect
        if prospect.stops:
            _logger.info(f"Trial {trial.number} ends early: {prospect}.")
        return prospect.stops


def _best(study: Study) -> float | None:
    """The value of the best trial that ran to its end; None before there is one."""
    completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return max((trial.value for trial in completed if trial.value is not None), default=None)
