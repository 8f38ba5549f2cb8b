"""A Ray Tune scheduler: a trial stops when its forecast says that it will not reach the best one.

    config = tune.TuneConfig(metric="reward", mode="max", scheduler=ForecastScheduler(budget=200))
    tune.Tuner(trainable, tune_config=config).fit()     # the trainable calls tune.report({"reward": ...})

Trials start in the order of submission; no trial waits for another.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from scalerl.core.errors import UsageError
from scalerl.core.units import STEPS, Axis
from scalerl.live.rule import Prospect, Search, StoppingRule, harmless, is_due, refusal_to_minimise

if TYPE_CHECKING:
    from ray.tune.execution.tune_controller import TuneController
    from ray.tune.experiment import Trial

# A child of Tune's own logger, which Ray shows.
_logger = logging.getLogger("ray.tune.schedulers.forecast")


class ForecastScheduler(FIFOScheduler):
    """Stops a trial whose reward at the budget will, very probably, stay below the best completed trial's."""

    def __init__(
        self,
        *,
        budget: float,
        target: float | None = None,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        axis: Axis = STEPS,
        bounds: tuple[float, float] = (0.0, 1.0),
        rule: StoppingRule | None = None,
    ) -> None:
        """A scheduler for one experiment.

        Args:
            budget: compute of a whole trial, as `time_attr` counts it.
            target: the reward to be reached, instead of the best completed trial's.
            time_attr: the reported result that counts compute.
            metric: the reported result that is the reward; here or in `tune.TuneConfig`.
            mode: `max`; here or in `tune.TuneConfig`.
            axis: what `time_attr` counts.
            bounds: least and largest reward that the grader can give.
            rule: how sure to be.

        Raises:
            UsageError: `mode` is `min`, the budget is no amount, or the target lies outside the bounds.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.prospects: dict[str, Prospect] = {}
        """By trial id: what was last said of it, and why it was stopped if it was."""
        self._search = Search(budget, target, axis, bounds, rule or StoppingRule())
        self._time_attr = time_attr
        self._metric = metric
        self._mode = _checked(mode)
        self._reports: dict[str, dict[float, Any]] = {}
        self._completed: dict[str, float] = {}

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take over what `tune.TuneConfig` says; False, which Tune tells as a mistake, where it was said before.

        Raises:
            UsageError: `mode` is `min`.
        """
        if self._mode and mode:
            return False
        self._mode = self._mode or _checked(mode)
        return bool(super().set_search_properties(metric, mode, **spec))

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        """STOP or CONTINUE, by all that `trial` has reported."""
        with harmless(f"trial {trial.trial_id}"):
            if self._stops(trial, result):
                return TrialScheduler.STOP
        return TrialScheduler.CONTINUE

    def _stops(self, trial: Trial, result: dict[str, Any]) -> bool:
        name = f"trial {trial.trial_id}"
        if self._time_attr not in result:
            raise UsageError(f"it reports no '{self._time_attr}'", where=name, remedy="name the result that counts compute in time_attr")
        if result.get(self.metric) is None:
            return False
        reports = self._reports.setdefault(trial.trial_id, {})
        reports[result[self._time_attr]] = result[self.metric]
        if not is_due(len(reports)):
            return False
        best = max(self._completed.values(), default=None)
        prospect = self._search.prospect(name, reports.items(), best=best, metric=self.metric)
        if prospect is None:
            return False
        self.prospects[trial.trial_id] = prospect
        if prospect.stops:
            _logger.info(f"Trial {trial.trial_id} stops: {prospect}.")
        return prospect.stops

    def on_trial_complete(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> None:
        """Remember where a trial ended, unless it was stopped here or ended without a reward."""
        prospect = self.prospects.get(trial.trial_id)
        if prospect is not None and prospect.stops:
            return
        with harmless(f"trial {trial.trial_id}"):
            reward = float(result.get(self.metric, math.nan))
            if math.isfinite(reward):
                self._completed[trial.trial_id] = reward

    def debug_string(self) -> str:
        """A line for Tune's status."""
        num_stopped = sum(prospect.stops for prospect in self.prospects.values())
        return f"Using the forecasts of scalerl: num_stopped={num_stopped}."


def _checked(mode: str | None) -> str | None:
    """`mode`, unless it minimises.

    Raises:
        UsageError: it does.
    """
    if mode == "min":
        raise refusal_to_minimise("mode")
    return mode
