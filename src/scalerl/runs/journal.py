"""The journal of a run: every event goes to the log and to whoever folds it, in one place and in one order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scalerl.accounting.alarms import AlarmFold, Alarms
from scalerl.accounting.metrics import MetricsFold, MetricsRow
from scalerl.accounting.metrics_stream import MetricsStream
from scalerl.accounting.spending import Spending
from scalerl.core.events import Entry
from scalerl.core.log_writer import LogWriter
from scalerl.recipes.recipe import Budget
from scalerl.records.events import Alarmed, CheckpointStarted, Evaluated, Event, Resumed, RunEnded, RunEntry

Observer = Callable[[RunEntry], None]
"""Is told every entry, old ones of a resumed run included: a live display, a test."""


class RunJournal:
    """Appends events, folds them, raises alarms, and knows when the budget is spent."""

    def __init__(self, log: LogWriter[Event], *, budget: Budget, alarms: Alarms, observers: Sequence[Observer] = ()) -> None:
        self._log = log
        self._budget = budget
        self._alarms = alarms
        self._observers = observers
        self._spending = Spending()
        self._metrics = MetricsFold()
        self._alarm_fold = AlarmFold()
        self._stopped_by: str | None = None
        self._alarms_at: dict[int, tuple[bytes, str | None]] = {}
        """The alarms' state by the event at which a checkpoint was captured: a resume goes back to it."""
        self.stream: MetricsStream | None = None
        """Where rows go; attached once it is known which rows a resume takes back."""
        self.num_resumes = 0
        self.ended: str | None = None
        """Why the run is over, and was not resumed since."""

    def replay(self, entry: RunEntry) -> None:
        """Take in an event that the log has already."""
        self._fold(entry)

    def append(self, event: Event) -> Entry[Event]:
        """Number, stamp and keep an event, and what it sets off."""
        entry = self._log.append(event)
        row, raised = self._fold(entry)
        if self.stream is not None and row is not None:
            self.stream.log_step(row)
        if self.stream is not None and isinstance(event, Evaluated):
            self.stream.log_evaluation(event, time_s=entry.time_s)
        for alarmed in raised:
            self.append(alarmed)
        return entry

    def ends(self, step: int) -> str | None:
        """Why the run ends after `step`; None if it goes on."""
        if self._stopped_by is not None:
            return self._stopped_by
        useful, budget = self._spending.useful, self._budget
        bounds = {
            "steps": (step, budget.steps),
            "FLOPs": (useful.flops, budget.flops),
            "hours": (self._spending.elapsed_s / 3600.0, budget.hours),
            "dollars": (useful.usd or 0.0, budget.usd),
        }
        spent = [name for name, (amount, bound) in bounds.items() if bound is not None and amount >= bound]
        return f"the budget of {spent[0]} is spent" if spent else None

    def _fold(self, entry: RunEntry) -> tuple[MetricsRow | None, tuple[Alarmed, ...]]:
        """Take in an entry; returns the row of a step, and the alarms that it raises."""
        self._spending.update(entry)
        row = self._metrics.update(entry)
        raised = () if row is None else self._alarm_fold.update(row, alarms=self._alarms)
        event = entry.event
        if isinstance(event, Alarmed) and event.stops:
            self._stopped_by = f"the alarm {event.alarm}: {event.value:.4g}, limit {event.limit:.4g}"
        elif isinstance(event, CheckpointStarted):
            self._alarms_at[entry.seq] = (self._alarm_fold.state(), self._stopped_by)
        elif isinstance(event, RunEnded):
            self.ended = event.reason
        elif isinstance(event, Resumed):
            self.num_resumes += 1
            self.ended = None
            state, self._stopped_by = self._alarms_at.get(event.from_seq, (AlarmFold().state(), None))
            self._alarm_fold = AlarmFold.restored(state)
        for observer in self._observers:
            observer(entry)
        return row, raised
