"""The ledger: where a run's device-seconds, FLOPs, tokens and dollars went, activity by activity or device by device.

Every second of every declared device has a row. What nobody measured is a row of its own, `unbooked`, computed as
elapsed device-seconds minus booked ones and never spread over the others; idle rows are measured waits. Work on somebody
else's devices, and in the orchestrator's own process, has seconds too, in a column of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import msgspec

from scalerl.accounting.fold import Fold
from scalerl.accounting.spending import Spending
from scalerl.records.cost import Activity, Cost
from scalerl.records.events import RunEntry, StepFinished

UNBOOKED = "unbooked"
_NO_DEVICE = ""
"""The device of costs that name none of the run's slots."""


class Sums(msgspec.Struct):
    """Running sums of one kind of work."""

    device_s: float = 0.0
    off_device_s: float = 0.0
    flops: float = 0.0
    overhead_flops: float = 0.0
    tokens: int = 0
    third_party_usd: float = 0.0

    @classmethod
    def of(cls, cost: Cost) -> Self:
        """The sums of one cost."""
        on, off = (0.0, cost.seconds) if cost.device is None else (cost.seconds, 0.0)
        return cls(on, off, cost.flops, cost.overhead_flops, cost.tokens, cost.usd)

    def add(self, other: Sums) -> None:
        """Add other sums, in place."""
        self.device_s += other.device_s
        self.off_device_s += other.off_device_s
        self.flops += other.flops
        self.overhead_flops += other.overhead_flops
        self.tokens += other.tokens
        self.third_party_usd += other.third_party_usd


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the ledger."""

    device: str | None
    """The slot; None where the row is of all of them, of none, or of one that was never heard of."""
    activity: str
    detail: str
    device_s: float
    off_device_s: float
    """Seconds of work on no device of the run: a hosted judge, or grading in the orchestrator's process."""
    share: float | None
    """Part of all elapsed device-seconds; None before any has passed."""
    flops: float
    overhead_flops: float
    """Padding and recomputation."""
    tokens: int
    usd: float | None
    """Dollars of devices and third parties; None where neither has a price."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a run has cost so far; the `device_s` of all rows sum to all elapsed device-seconds."""

    rows: tuple[Row, ...]
    elapsed_device_s: float
    base_device_s: float
    """Part of it before RL began: loading, and the warm start."""
    wasted_device_s: float
    """Part of the rows' time that a resume threw away."""
    wasted_flops: float
    wasted_steps: int
    num_steps: int
    """Steps of the lineage that goes on; with what a step of it costs in the mean, evaluation left out:"""
    device_s_per_step: float | None
    flops_per_step: float | None
    usd_per_step: float | None
    num_pushes: int = 0
    push_waited_s: float = 0.0
    """Seconds for which decoding stood still for pushes."""

    @property
    def unbooked_share(self) -> float | None:
        """Part of the elapsed device-seconds that nobody measured."""
        return _share(sum(row.device_s for row in self.rows if row.activity == UNBOOKED), self.elapsed_device_s)

    @property
    def usd(self) -> float | None:
        """Dollars in all; None where nothing has a price."""
        known = [row.usd for row in self.rows if row.usd is not None]
        return sum(known) if known else None

    def of(self, activity: Activity) -> list[Row]:
        """The rows of an activity, one for each detail, and for each device where they are told apart."""
        return [row for row in self.rows if row.activity == activity]

    @property
    def grading_share(self) -> float | None:
        """Seconds of grading, wherever it ran, against all elapsed device-seconds."""
        return _share(sum(row.device_s + row.off_device_s for row in self.of(Activity.GRADE)), self.elapsed_device_s)

    @property
    def device_s_per_1000_tokens(self) -> float | None:
        """Elapsed device-seconds of RL for a thousand generated tokens."""
        num_tokens = sum(row.tokens for row in self.of(Activity.GENERATE))
        return _share(1000.0 * (self.elapsed_device_s - self.base_device_s), num_tokens)

    def to_dict(self) -> dict[str, Any]:
        """The ledger in plain numbers."""
        derived = ("unbooked_share", "usd", "grading_share", "device_s_per_1000_tokens")
        return {**msgspec.to_builtins(self), **{name: getattr(self, name) for name in derived}}


class LedgerFold(Fold):
    """Sums costs by device, activity and detail."""

    sums: dict[str, dict[str, dict[str, Sums]]] = {}
    """By device, then by activity, then by detail."""
    spending: Spending = msgspec.field(default_factory=Spending)
    num_pushes: int = 0
    push_waited_s: float = 0.0

    def update(self, entry: RunEntry) -> None:
        """Take in one entry, in order."""
        self.spending.update(entry)
        if isinstance(entry.event, StepFinished) and entry.event.push is not None:
            self.num_pushes += 1
            self.push_waited_s += entry.event.push.waited_s
        for cost in entry.event.costs:
            activities = self.sums.setdefault(cost.device or _NO_DEVICE, {})
            activities.setdefault(cost.activity, {}).setdefault(cost.detail, Sums()).add(Sums.of(cost))

    def ledger(self, *, by: Literal["activity", "device"] = "activity") -> Ledger:
        """The rows so far, the dearest first: of all devices together with `unbooked` last, or device after device."""
        spending = self.spending
        useful, wasted = spending.useful, spending.wasted
        return Ledger(
            rows=tuple(self._by_activity() if by == "activity" else self._by_device()),
            elapsed_device_s=self._elapsed_device_s,
            base_device_s=spending.base_device_s,
            wasted_device_s=wasted.device_s,
            wasted_flops=wasted.flops,
            wasted_steps=wasted.num_steps,
            num_steps=useful.num_steps,
            device_s_per_step=_share(useful.device_s, useful.num_steps),
            flops_per_step=_share(useful.flops, useful.num_steps),
            usd_per_step=None if useful.usd is None else _share(useful.usd, useful.num_steps),
            num_pushes=self.num_pushes,
            push_waited_s=self.push_waited_s,
        )

    @property
    def _elapsed_device_s(self) -> float:
        return self.spending.elapsed_s * self.spending.num_devices

    def _by_activity(self) -> list[Row]:
        kinds: dict[tuple[str, str], Sums] = {}
        for activities in self.sums.values():
            for activity, details in activities.items():
                for detail, sums in details.items():
                    kinds.setdefault((activity, detail), Sums()).add(sums)
        rows = _dearest_first(self._row(None, activity, detail, sums) for (activity, detail), sums in kinds.items())
        return [*rows, self._unbooked(None, self._elapsed_device_s, rows)]

    def _by_device(self) -> list[Row]:
        """The rows of each device that was heard of, each with its own `unbooked`, of those that were not, and of work on none."""
        devices = sorted(self.sums.keys() - {_NO_DEVICE})
        rows: list[Row] = []
        for device in devices:
            own = self._rows_of(device)
            rows += [*own, self._unbooked(device, self.spending.elapsed_s, own)]
        if num_silent := self.spending.num_devices - len(devices):
            rows.append(self._unbooked(None, num_silent * self.spending.elapsed_s, []))
        return [*rows, *self._rows_of(_NO_DEVICE)]

    def _rows_of(self, device: str) -> list[Row]:
        return _dearest_first(
            self._row(device or None, activity, detail, sums)
            for activity, details in self.sums.get(device, {}).items()
            for detail, sums in details.items()
        )

    def _unbooked(self, device: str | None, elapsed_device_s: float, booked: Sequence[Row]) -> Row:
        return self._row(device, UNBOOKED, "", Sums(device_s=elapsed_device_s - sum(row.device_s for row in booked)))

    def _row(self, device: str | None, activity: str, detail: str, sums: Sums) -> Row:
        price = self.spending.usd_per_device_hour
        device_usd = None if price is None else price * sums.device_s / 3600.0
        return Row(
            device=device,
            activity=activity,
            detail=detail,
            device_s=sums.device_s,
            off_device_s=sums.off_device_s,
            share=_share(sums.device_s, self._elapsed_device_s),
            flops=sums.flops,
            overhead_flops=sums.overhead_flops,
            tokens=sums.tokens,
            usd=device_usd if not sums.third_party_usd else (device_usd or 0.0) + sums.third_party_usd,
        )


def _dearest_first(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (-row.device_s, -row.off_device_s, row.activity, row.detail))


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
