"""A callback for transformers' Trainer and TRL's trainers: where the run will end, after each evaluation.

    trainer = GRPOTrainer(..., callbacks=[ForecastCallback()])
    trainer = GRPOTrainer(..., callbacks=[ForecastCallback(target=0.75, action="stop")])

The points are those that `scalerl fit trainer_state.json` would find: held-out evaluations if there are any, else the
training reward. They are read from the trainer's own history, so that a resumed run goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from scalerl.core.errors import ScalerlError, UsageError
from scalerl.core.units import STEPS
from scalerl.importers.tables.assemble import curves_of
from scalerl.importers.tables.choice import Choice
from scalerl.importers.tables.table import Table, TableBuilder
from scalerl.live.rule import Prospect, StoppingRule, check_aims, harmless, is_due, refusal_to_minimise
from scalerl.records.curve import Curve

_FLOPS_COLUMN = "total_flos"
_HISTORY = Path("the trainer's log history")


class ForecastCallback(TrainerCallback):
    """Writes the forecast of the run's end, and ends it early where that is asked for."""

    def __init__(
        self,
        *,
        target: float | None = None,
        action: Literal["show", "stop"] = "show",
        budget: float | None = None,
        metric: str | None = None,
        x: str = STEPS.name,
        bounds: tuple[float, float] | None = None,
        rule: StoppingRule | None = None,
        write: Callable[[str], None] = print,
    ) -> None:
        """A callback for one run.

        Args:
            target: the reward that the run must reach to be worth it.
            action: `stop` ends the training when the rule holds for every curve; `show` only writes.
            budget: compute of the whole run, in units of `x`; that of the last step at the pace so far if left out.
            metric: the logged name of the reward; found if left out, as `scalerl fit` finds it.
            x: what compute is counted in: `steps`, `tokens`, `flops`, or the name of a logged column.
            bounds: least and largest reward that the grader can give; by the values if left out.
            rule: how sure to be.
            write: takes each line.

        Raises:
            UsageError: `metric` is a loss, `action` is none or lacks a target, the budget is no amount, or no reward can be the target.
        """
        if action not in ("show", "stop") or (action == "stop" and target is None):
            raise UsageError(f"action '{action}' stops nothing", where="ForecastCallback", remedy="give action='stop' with a target")
        check_aims("ForecastCallback", budget=budget, target=target, bounds=bounds)
        if metric is not None and "loss" in metric:
            raise refusal_to_minimise(metric)
        self.prospects: tuple[Prospect, ...] = ()
        """What was last said, one for each curve."""
        self._target = target
        self._action = action
        self._budget = budget
        self._choice = Choice(x=x, y=metric, bounds=bounds)
        self._rule = rule or StoppingRule()
        self._write = write
        self._flops: dict[int, float] = {}
        self._num_points: dict[str, int] = {}
        self._last: dict[str, Prospect | None] = {}
        self._trouble: ScalerlError | None = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Count the points of a resumed run, which were judged before."""
        with harmless("the run"):
            self._num_points = {curve.metric: len(curve) for curve in self._curves(state)}

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Remember the FLOPs; judge the training reward, for want of an evaluation, from time to time."""
        self._flops[state.global_step] = state.total_flos
        if is_due(len(state.log_history)):
            self._judge(state, control)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Judge the run."""
        self._judge(state, control)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Say why nothing was said."""
        with harmless("the run"):
            if self._trouble is not None and state.is_world_process_zero:
                self._write(f"scalerl: no forecast: {self._trouble}")

    def _judge(self, state: TrainerState, control: TrainerControl) -> None:
        """Write what the new points of each curve say, and stop if the rule says so for every curve.

        Of several data sets one is evaluated after the other: the others' curves have not grown.
        """
        with harmless("the run"):
            curves = self._curves(state)
            grown = [curve for curve in curves if len(curve) != self._num_points.get(curve.metric, 0)]
            if not grown:
                return
            self._num_points |= {curve.metric: len(curve) for curve in grown}
            for curve in grown:
                self._last[curve.metric] = self._rule.prospect(curve, budget=self._end(curve, state), target=self._target)
            prospects = [self._last.get(curve.metric) for curve in curves]
            self.prospects = tuple(prospect for prospect in prospects if prospect is not None)
            if self._action == "stop" and all(prospect is not None and prospect.stops for prospect in prospects):
                control.should_training_stop = True
            for prospect in (self._last[curve.metric] for curve in grown) if state.is_world_process_zero else ():
                if prospect is not None:
                    self._write(f"scalerl: {prospect}")

    def _curves(self, state: TrainerState) -> list[Curve]:
        """The curves of the history; none, of which `on_train_end` tells, where it holds none yet."""
        try:
            curves = curves_of(self._table(state), self._choice, path=_HISTORY)
        except ScalerlError as error:
            self._trouble = error
            return []
        self._trouble = None
        return curves

    def _table(self, state: TrainerState) -> Table:
        """The history with the FLOPs of each step, which the trainer counts but does not log."""
        table = TableBuilder()
        for row in state.log_history:
            table.add({_FLOPS_COLUMN: self._flops.get(int(row["step"])), **row}.items())
        return table.build()

    def _end(self, curve: Curve, state: TrainerState) -> float:
        if self._budget is not None:
            return self._budget
        done = max(state.global_step, 1)
        return float(curve.compute[-1]) * max(state.max_steps, done) / done
