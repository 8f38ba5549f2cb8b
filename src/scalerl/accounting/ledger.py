"""The ledger: where a run's device-seconds, FLOPs, tokens and dollars went, activity by activity.

Every second of every declared device has a row. What nobody measured is a row of its own, `unbooked`, computed as
elapsed device-seconds minus booked ones and never spread over the others; idle rows are measured waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from scalerl.accounting.fold import Fold
from scalerl.accounting.spending import Spending
from scalerl.records.cost import Cost
from scalerl.records.events import RunEntry

UNBOOKED = "unbooked"


class Sums(msgspec.Struct):
    """Running sums of one kind of work."""

    device_s: float = 0.0
    flops: float = 0.0
    overhead_flops: float = 0.0
    tokens: int = 0
    third_party_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the ledger."""

    activity: str
    detail: str
    device_s: float
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
    """What a run has cost so far; `rows` sum to all elapsed device-seconds."""

    rows: tuple[Row, ...]
    elapsed_device_s: float
    wasted_device_s: float
    """Part of the rows' time that a resume threw away."""
    wasted_flops: float

    @property
    def unbooked_share(self) -> float | None:
        """Part of the elapsed device-seconds that nobody measured."""
        return next((row.share for row in self.rows if row.activity == UNBOOKED), None)

    def to_dict(self) -> dict[str, Any]:
        """The ledger in plain numbers."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


class LedgerFold(Fold):
    """Sums costs by activity and detail."""

    sums: dict[str, dict[str, Sums]] = {}
    """By activity, then by detail."""
    spending: Spending = msgspec.field(default_factory=Spending)

    def update(self, entry: RunEntry) -> None:
        """Take in one entry, in order."""
        self.spending.update(entry)
        for cost in entry.event.costs:
            self._add(cost)

    def _add(self, cost: Cost) -> None:
        sums = self.sums.setdefault(cost.activity, {}).setdefault(cost.detail, Sums())
        if cost.device is not None:
            sums.device_s += cost.seconds
        sums.flops += cost.flops
        sums.overhead_flops += cost.overhead_flops
        sums.tokens += cost.tokens
        sums.third_party_usd += cost.usd

    def ledger(self) -> Ledger:
        """The rows so far, the dearest first and `unbooked` last."""
        elapsed_device_s = self.spending.elapsed_s * self.spending.num_devices
        booked = [
            self._row(activity, detail, sums, elapsed_device_s)
            for activity, details in self.sums.items()
            for detail, sums in details.items()
        ]
        rest = Sums(device_s=elapsed_device_s - sum(row.device_s for row in booked))
        return Ledger(
            rows=(
                *sorted(booked, key=lambda row: (-row.device_s, row.activity, row.detail)),
                self._row(UNBOOKED, "", rest, elapsed_device_s),
            ),
            elapsed_device_s=elapsed_device_s,
            wasted_device_s=self.spending.wasted.device_s,
            wasted_flops=self.spending.wasted.flops,
        )

    def _row(self, activity: str, detail: str, sums: Sums, elapsed_device_s: float) -> Row:
        price = self.spending.usd_per_device_hour
        device_usd = None if price is None else price * sums.device_s / 3600.0
        return Row(
            activity=activity,
            detail=detail,
            device_s=sums.device_s,
            share=sums.device_s / elapsed_device_s if elapsed_device_s else None,
            flops=sums.flops,
            overhead_flops=sums.overhead_flops,
            tokens=sums.tokens,
            usd=device_usd if not sums.third_party_usd else (device_usd or 0.0) + sums.third_party_usd,
        )
