"""Spending: what a run has used up so far, and how it goes back when a resume repeats work.

All devices of a run times wall time, idle included, is its device time (as arXiv 2510.13786 counts); time between a crash
and the resume is nobody's. At a resume the useful amounts return to those of the checkpoint, and the rest is waste.
"""

from __future__ import annotations

import msgspec

from scalerl.core.errors import CorruptLogError
from scalerl.core.units import DEVICE_HOURS, FLOPS, TOKENS, USD, Axis
from scalerl.records.cost import Activity
from scalerl.records.events import BaseReady, CheckpointStarted, Evaluated, GroupFinished, Resumed, RunEntry, RunStarted, StepFinished

OFF_AXIS = frozenset({Activity.EVALUATE, Activity.WARM_START})
"""Work whose FLOPs, tokens and dollars are booked but not part of the compute that a curve is drawn against."""


class Amounts(msgspec.Struct):
    """Device-seconds, FLOPs, tokens and dollars. Dollars are None while no price is known: absence is not zero."""

    device_s: float = 0.0
    flops: float = 0.0
    tokens: int = 0
    usd: float | None = None
    num_steps: int = 0

    def on(self, axis: Axis) -> float | None:
        """The amount on `axis`; None if it is not known, or the axis is none of a run's."""
        known = {FLOPS: self.flops, DEVICE_HOURS: self.device_s / 3600.0, TOKENS: float(self.tokens), USD: self.usd}
        return known.get(axis)

    def add(self, *, device_s: float = 0.0, flops: float = 0.0, tokens: int = 0, usd: float | None = None, num_steps: int = 0) -> None:
        """Add to the amounts, in place."""
        self.device_s += device_s
        self.flops += flops
        self.tokens += tokens
        self.num_steps += num_steps
        if usd is not None:
            self.usd = (self.usd or 0.0) + usd


class Captured(msgspec.Struct, frozen=True):
    """What had been spent when a checkpoint was captured."""

    useful: Amounts
    unsettled: Amounts
    """The part of it that made groups which the checkpoint does not settle: a resume generates them again."""


class Spending(msgspec.Struct):
    """Running totals of a run: `useful` is what the lineage that goes on has cost, `wasted` what resumes and lost roles threw away."""

    useful: Amounts = msgspec.field(default_factory=Amounts)
    wasted: Amounts = msgspec.field(default_factory=Amounts)
    base_device_s: float = 0.0
    """Device-seconds before the base model stood: part of the bill, and not of `useful`."""
    num_devices: int = 0
    usd_per_device_hour: float | None = None
    last_time_s: float | None = None
    elapsed_s: float = 0.0
    """Wall seconds during which the run was alive, those that leave the axis included."""
    waiting: dict[int, int] = {}
    """Sampled tokens of the groups that are finished and not settled. What is in flight no event tells of: its waste stays useful."""
    generated: Amounts = msgspec.field(default_factory=Amounts)
    """FLOPs and tokens of generation, whose quotient prices the waiting tokens."""
    checkpoints: dict[int, Captured] = {}
    """By the event at which a checkpoint was captured."""

    def update(self, entry: RunEntry) -> None:
        """Take in one entry, in order."""
        event = entry.event
        if isinstance(event, Resumed):
            self._roll_back(event.from_seq)
        elif self.last_time_s is not None:
            self.elapsed_s += entry.time_s - self.last_time_s
            self._add_wall_time(entry.time_s - self.last_time_s)
        self.last_time_s = entry.time_s
        if isinstance(event, RunStarted):
            self.num_devices, self.usd_per_device_hour = event.num_devices, event.usd_per_device_hour
        elif isinstance(event, GroupFinished):
            self.waiting[event.group] = sum(event.num_tokens) - sum(event.num_inserted)
        elif isinstance(event, StepFinished):
            self.useful.add(num_steps=1)
            for groups in (event.trained, *event.filtered.values(), event.dropped, event.failed, event.cancelled):
                for group in groups:
                    self.waiting.pop(group, None)
        elif isinstance(event, Evaluated):
            self._add_wall_time(-min(event.blocked_s, self.useful.device_s / max(self.num_devices, 1)))
        for cost in event.costs:
            if cost.activity not in OFF_AXIS:
                # Third parties' dollars alone are not what a run costs whose own devices have no price.
                self.useful.add(flops=cost.flops, tokens=cost.tokens, usd=None if self.usd_per_device_hour is None else cost.usd)
            if cost.activity is Activity.GENERATE:
                self.generated.add(flops=cost.flops, tokens=cost.tokens)
            if cost.activity is Activity.LOST:
                self._waste(cost.seconds)
        if isinstance(event, BaseReady):
            self.base_device_s += self.useful.device_s
            self.useful = Amounts()
        if isinstance(event, CheckpointStarted):
            self.checkpoints[entry.seq] = Captured(msgspec.structs.replace(self.useful), self._unsettled())

    def _add_wall_time(self, seconds: float) -> None:
        device_s = seconds * self.num_devices
        price = self.usd_per_device_hour
        self.useful.add(device_s=device_s, usd=None if price is None else price * device_s / 3600.0)

    def _waste(self, device_s: float) -> None:
        """Take device-seconds of a lost role off the axis: what it did is done again."""
        price = self.usd_per_device_hour
        usd = None if price is None else price * device_s / 3600.0
        self.useful.add(device_s=-device_s, usd=None if usd is None else -usd)
        self.wasted.add(device_s=device_s, usd=usd)

    def _roll_back(self, seq: int) -> None:
        """Return to the checkpoint captured at event `seq`, or to the beginning."""
        if seq >= 0 and seq not in self.checkpoints:
            raise CorruptLogError(f"the run was resumed from event {seq}, which is no checkpoint", remedy="restore the log from a copy")
        spent, captured = self.useful, self.checkpoints.get(seq, Captured(Amounts(), Amounts()))
        kept = msgspec.structs.replace(captured.useful)
        kept.add(flops=-captured.unsettled.flops, tokens=-captured.unsettled.tokens)
        self.wasted.add(
            device_s=spent.device_s - kept.device_s,
            flops=spent.flops - kept.flops,
            tokens=spent.tokens - kept.tokens,
            usd=None if spent.usd is None else spent.usd - (kept.usd or 0.0),
            num_steps=spent.num_steps - kept.num_steps,
        )
        self.useful = kept
        self.waiting = {}
        self.checkpoints = {at: captured for at, captured in self.checkpoints.items() if at < seq}
        if seq >= 0:
            self.checkpoints[seq] = Captured(msgspec.structs.replace(kept), Amounts())

    def _unsettled(self) -> Amounts:
        """What generating the waiting groups took, by their share of all sampled tokens."""
        tokens = min(sum(self.waiting.values()), self.generated.tokens)
        flops = self.generated.flops * tokens / self.generated.tokens if self.generated.tokens else 0.0
        return Amounts(flops=flops, tokens=tokens)
