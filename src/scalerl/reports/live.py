"""The live display of a run: where it is, how it does, how long it still takes.

    with LiveDisplay(console_for(sys.stderr), budget=recipe.budget) as display:
        for entry in ...:
            display.update(entry)

On a terminal a panel that is drawn anew; elsewhere a plain line now and then. What it says is folded from the run's entries,
whose times are its own; the clock only decides when to say it, so that the replay of a resumed run floods nobody.
"""

from __future__ import annotations

import math
from collections import deque
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from scalerl.accounting.metrics import MetricsFold, MetricsRow
from scalerl.accounting.spending import Spending
from scalerl.core.clock import Clock, SystemClock
from scalerl.core.text import printable
from scalerl.core.units import format_number
from scalerl.recipes.recipe import Budget
from scalerl.records.cost import Activity
from scalerl.records.events import Alarmed, BaseReady, Evaluated, Resumed, RunEnded, RunEntry, RunStarted, StepFinished

_REFRESH_S = 0.25
_LINE_EVERY_S = 10.0
_RECENT_STEPS = 20
"""Steps over which speed and idle time are taken."""
_MOST_WARNINGS = 3
_WIDEST, _VALUE_WIDTH = 72, 16
_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.-=+*#@"


class Progress:
    """What the display shows, folded from entries."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.row: MetricsRow | None = None
        """The latest step."""
        self.pass_rates: list[float] = []
        """Held-out pass rates of the task evaluated first, in order."""
        self.warnings: list[str] = []
        self.has_base = False
        self.num_resumes = 0
        self.ended: str | None = None
        self.metrics = MetricsFold()
        self.spending = Spending()
        self._task: str | None = None
        self._base_elapsed_s = 0.0
        self._idle_s = 0.0
        self._recent: deque[tuple[float, float, int]] = deque(maxlen=_RECENT_STEPS + 1)

    def update(self, entry: RunEntry) -> None:
        """Take in one entry, in order."""
        event = entry.event
        self.spending.update(entry)
        self._idle_s += sum(cost.seconds for cost in event.costs if cost.activity is Activity.IDLE and cost.device is not None)
        row = self.metrics.update(entry)
        if row is not None:
            self.row = row
            self._recent.append((self.spending.elapsed_s, self._idle_s, self.metrics.totals.num_tokens))
        if isinstance(event, BaseReady):
            self.has_base = True
            self._base_elapsed_s = self.spending.elapsed_s
            self._recent.append((self.spending.elapsed_s, self._idle_s, 0))
        elif isinstance(event, Evaluated):
            self._evaluated(event)
        elif isinstance(event, Alarmed):
            self.warnings.append(alarm_in_words(event))
        elif isinstance(event, Resumed):
            self.has_base = event.from_seq >= 0
            self._recent.clear()
            # One warning for all of them: a run may have been killed a hundred times.
            self.warnings = [warning for warning in self.warnings if warning != self.resumes]
            self.num_resumes += 1
            self.warnings.append(self.resumes)
        elif isinstance(event, RunEnded):
            self.ended = event.reason

    def _evaluated(self, event: Evaluated) -> None:
        self._task = self._task or event.task
        if event.task == self._task and event.num_graded:
            self.pass_rates.append(event.num_passed / event.num_graded)

    @property
    def resumes(self) -> str:
        """That the run was resumed, and how often."""
        times = "" if self.num_resumes == 1 else f" {self.num_resumes} times"
        return f"The run was resumed{times}: steps after its checkpoint are repeated."

    @property
    def step(self) -> int:
        """The latest finished step."""
        return self.row.step if self.row else 0

    @property
    def elapsed_s(self) -> float:
        """Wall seconds that the run was alive."""
        return self.spending.elapsed_s

    @property
    def tokens_per_s(self) -> float | None:
        """Completion tokens that steps dealt with per wall second, lately."""
        return self._lately(2)

    @property
    def idle_share(self) -> float | None:
        """Share of all device time spent waiting, lately."""
        per_s = self._lately(1)
        return None if per_s is None else per_s / max(self.spending.num_devices, 1)

    def _lately(self, column: int) -> float | None:
        if len(self._recent) < 2:
            return None
        first, last = self._recent[0], self._recent[-1]
        duration_s = last[0] - first[0]
        return (last[column] - first[column]) / duration_s if duration_s > 0.0 else None

    @property
    def done_share(self) -> float:
        """Part of the budget that is used up, by the bound that is nearest."""
        return min(1.0, max(self._shares().values(), default=0.0))

    @property
    def left_s(self) -> float | None:
        """Wall seconds until the first bound is met at the run's own pace; None before there is one."""
        training_s = self.elapsed_s - self._base_elapsed_s
        paces = [training_s * (1.0 - share) / share for bound, share in self._shares().items() if share > 0.0 and bound != "hours"]
        if self.budget.hours is not None:
            paces.append(3600.0 * self.budget.hours - self.elapsed_s)
        return max(0.0, min(paces)) if paces and self.step else None

    def _shares(self) -> dict[str, float]:
        """By bound of the budget: the share of it that is used up."""
        useful = self.spending.useful
        used = {"steps": self.step, "flops": useful.flops, "hours": self.elapsed_s / 3600.0, "usd": useful.usd or 0.0}
        bounds = {name: getattr(self.budget, name) for name in used}
        return {name: used[name] / bound for name, bound in bounds.items() if bound is not None}


class LiveDisplay:
    """Shows `Progress` on a console: a panel on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console, *, budget: Budget, clock: Clock | None = None) -> None:
        self.progress = Progress(budget)
        self._console = console
        self._clock = SystemClock() if clock is None else clock
        self._shown_s = -math.inf
        self._told_resumes = 0
        # Drawn by hand: a refreshing thread has no place beside the event loop.
        self._live = Live(console=console, auto_refresh=False, transient=False) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            self._live.update(panel(self.progress, width=self._width, is_ascii=self._console.options.ascii_only), refresh=True)
            self._live.stop()

    def update(self, entry: RunEntry) -> None:
        """Take in one entry, and show what is new."""
        self.progress.update(entry)
        if self._live:
            self._draw(self._live, entry)
        else:
            self._write_lines(entry)

    def warn(self, sentence: str) -> None:
        """Show a sentence that is no event, such as that a tracker failed."""
        self.progress.warnings.append(sentence)
        if not self._live:
            self._line(f"warning: {sentence}")

    @property
    def _width(self) -> int:
        return min(self._console.width, _WIDEST)

    def _draw(self, live: Live, entry: RunEntry) -> None:
        if self._is_due(_REFRESH_S) or isinstance(entry.event, BaseReady | RunEnded):
            live.update(panel(self.progress, width=self._width, is_ascii=self._console.options.ascii_only), refresh=True)

    def _write_lines(self, entry: RunEntry) -> None:
        event = entry.event
        if isinstance(event, Alarmed):
            self._line(f"warning: {self.progress.warnings[-1]}")
        elif isinstance(event, RunStarted | BaseReady):
            self._line(line(self.progress))
        elif isinstance(event, RunEnded) or (isinstance(event, StepFinished) and self._is_due(_LINE_EVERY_S)):
            self._tell_resumes()
            self._line(line(self.progress))

    def _tell_resumes(self) -> None:
        """Those since it was last done as one line: the replay of a run that was often killed has many."""
        if self.progress.num_resumes > self._told_resumes:
            self._told_resumes = self.progress.num_resumes
            self._line(f"warning: {self.progress.resumes}")

    def _is_due(self, every_s: float) -> bool:
        now_s = self._clock.now_s()
        if now_s - self._shown_s < every_s:
            return False
        self._shown_s = now_s
        return True

    def _line(self, text: str) -> None:
        self._console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


def panel(progress: Progress, *, width: int, is_ascii: bool = False) -> RenderableType:
    """The display as a panel, `width` characters wide."""
    bar, facts = Table.grid(), Table.grid(padding=(0, 2, 0, 0))
    bar.add_row(ProgressBar(total=1.0, completed=progress.done_share, width=width - 4))
    for _ in range(2):
        facts.add_column(style="dim", no_wrap=True)
        facts.add_column(min_width=_VALUE_WIDTH, overflow="fold")
    cells = [cell for name, value in _facts(progress, is_ascii=is_ascii) for cell in (name, Text(value))]
    for start in range(0, len(cells), 4):
        facts.add_row(*cells[start : start + 4])
    parts: list[RenderableType] = [bar, facts]
    parts += [Text(f"! {printable(warning)}", style="yellow", overflow="fold") for warning in progress.warnings[-_MOST_WARNINGS:]]
    border = "yellow" if progress.warnings else "green" if progress.ended else "blue"
    return Panel(Group(*parts), title=_title(progress), title_align="left", border_style=border, width=width)


def line(progress: Progress) -> str:
    """The display as one line."""
    parts = [_title(progress), *(f"{name} {value}" for name, value in _facts(progress, is_ascii=True, num_bars=0))]
    return ", ".join(parts)


def _title(progress: Progress) -> str:
    of_steps = f" of {progress.budget.steps}" if progress.budget.steps else ""
    title = f"step {progress.step}{of_steps}"
    if progress.ended:
        return f"{title}, ended: {printable(progress.ended)}"
    return title if progress.has_base else f"{title}, the base is being made"


def _facts(progress: Progress, *, is_ascii: bool, num_bars: int = 10) -> list[tuple[str, str]]:
    """What is known so far, by name."""
    totals, row = progress.metrics.totals, progress.row
    facts: list[tuple[str, str]] = []
    if row is not None and row.reward_mean is not None:
        facts.append(("reward", f"{row.reward_mean:.3f}"))
    if progress.pass_rates:
        bars = f" {sparkline(progress.pass_rates, is_ascii=is_ascii, most=num_bars)}".rstrip()
        facts.append(("held out", f"{progress.pass_rates[-1]:.3f}{bars}"))
    if totals.age_mean is not None:
        facts.append(("age", f"mean {totals.age_mean:.1f}, p95 {totals.age_quantile(0.95)}"))
    if row is not None and row.truncated_share is not None:
        facts.append(("cut off", f"{row.truncated_share:.1%}"))
    if progress.tokens_per_s is not None:
        facts.append(("tokens/s", format_number(progress.tokens_per_s)))
    if progress.idle_share is not None:
        facts.append(("idle", f"{progress.idle_share:.0%}"))
    facts.append(("elapsed", duration(progress.elapsed_s)))
    if progress.left_s is not None and not progress.ended:
        facts.append(("left", f"about {duration(progress.left_s)}"))
    return facts


def sparkline(values: list[float], *, is_ascii: bool, most: int = 20) -> str:
    """The latest `most` values as bars between their least and their largest."""
    bars, shown = _ASCII_BARS if is_ascii else _BARS, values[len(values) - min(most, len(values)) :]
    if len(shown) < 2:
        return ""
    low, span = min(shown), max(shown) - min(shown)
    return "".join(bars[round((value - low) / span * (len(bars) - 1)) if span else 0] for value in shown)


def duration(seconds: float) -> str:
    """Seconds as people read them: `42 s`, `3:05`, `1:02:03`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def alarm_in_words(event: Alarmed) -> str:
    """An alarm as a sentence."""
    name = event.alarm.replace("_", " ")
    side = "above" if event.value > event.limit else "below"
    end = ", and the run stops for it" if event.stops else ""
    return f"Step {event.step}: {name} is {event.value:.3g}, {side} its limit of {event.limit:.3g}{end}."
