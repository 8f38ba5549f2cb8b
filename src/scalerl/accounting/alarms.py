"""Alarms: what a step measured, held against limits, so that a run that goes wrong says so while it can be mended.

    [alarms.ess]
    limit = 0.3
    action = "stop"

One step is noise: an alarm looks at the mean of the latest `window_steps` steps that measured its quantity, is raised
once when that passes the limit, and can be raised again only after it was back within.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Literal

from pydantic import Field

from scalerl.accounting.fold import Fold
from scalerl.accounting.metrics import MetricsRow
from scalerl.core.components import Settings
from scalerl.records.events import Alarmed

Action = Literal["warn", "stop", "off"]


class _Alarm(Settings):
    action: Action = "warn"
    """Whether the alarm is only told, ends the run, or is not looked at."""


class Truncation(_Alarm):
    """Completions that end with their budget: they score the minimum for their length, and the policy learns from that."""

    limit: float = Field(default=0.10, ge=0.0, le=1.0)
    """Largest share of completions. Above .10 to .15 runs were destabilised (arXiv 2510.13786, section 6)."""


class Ess(_Alarm):
    """Effective sample size of the importance ratios, 1 when on-policy: a falling one comes before a collapse (arXiv 2602.17616)."""

    limit: float = Field(default=0.5, ge=0.0, le=1.0)
    """Least effective sample size. It is 1 / (1 + c^2) with c the ratios' coefficient of variation: at .5 they vary as much
    as they weigh, and a few tokens decide the update."""


class Entropy(_Alarm):
    """Entropy of the trained tokens: without any left nothing new is tried, whatever the reward."""

    limit: float = Field(default=0.005, ge=0.0)
    """Least mean entropy in nats a token. Reasoning models are trained at .1 to 1; a small task that is solved falls to some
    .02, and at .005 about one token in a thousand is still open."""


class Mismatch(_Alarm):
    """Largest difference between the log-probs that generator and trainer give the probe under the same weights."""

    limit: float = Field(default=0.05, ge=0.0)
    """Largest difference in nats. A bf16 body shows some .01; at .05 the ratios are off by 5 %, a quarter of a usual clip
    range. Two fp32 sides agree to 1e-4, so an fp32 run should set that."""


class GraderFailures(_Alarm):
    """Completions without a score because the grader failed: they leave the batch, and what is left may be a biased part."""

    limit: float = Field(default=0.05, ge=0.0, le=1.0)
    """Largest share of completions."""


class Alarms(Settings):
    """The alarms of a run."""

    window_steps: int = Field(default=5, gt=0)
    """Latest steps that are averaged; no alarm is raised before so many have measured its quantity."""
    truncation: Truncation = Truncation()
    ess: Ess = Ess()
    entropy: Entropy = Entropy()
    mismatch: Mismatch = Mismatch()
    grader_failures: GraderFailures = GraderFailures()


class AlarmFold(Fold):
    """Turns metrics rows into alarms; a resume takes it back to its state at the checkpoint."""

    recent: dict[str, list[float]] = {}
    """By alarm: the latest measurements, oldest first."""
    beyond: dict[str, bool] = {}
    """By alarm: whether the latest mean was beyond the limit."""

    def update(self, row: MetricsRow, *, alarms: Alarms) -> tuple[Alarmed, ...]:
        """Take in the row of a step, in order; return the alarms that it raises."""
        raised = []
        for name, alarm, measured, sign in _measurements(row, alarms):
            if alarm.action == "off" or measured is None:
                continue
            latest = [*self.recent.get(name, []), measured][-alarms.window_steps :]
            mean = fmean(latest)
            is_beyond = len(latest) == alarms.window_steps and sign * mean > sign * alarm.limit
            if is_beyond and not self.beyond.get(name, False):
                raised.append(Alarmed(step=row.step, alarm=name, value=mean, limit=alarm.limit, stops=alarm.action == "stop"))
            self.recent[name], self.beyond[name] = latest, is_beyond
        return tuple(raised)


_Limited = Truncation | Ess | Entropy | Mismatch | GraderFailures


def _measurements(row: MetricsRow, alarms: Alarms) -> Iterator[tuple[str, _Limited, float | None, int]]:
    """Each alarm with what the row measured for it, and 1 where its limit is the largest value, -1 where it is the least."""
    yield "truncation", alarms.truncation, row.truncated_share, 1
    yield "ess", alarms.ess, row.trainer.get("ess"), -1
    yield "entropy", alarms.entropy, row.trainer.get("entropy"), -1
    yield "mismatch", alarms.mismatch, row.trainer.get("mismatch_max"), 1
    yield "grader_failures", alarms.grader_failures, row.grading_failed_share, 1
