"""The ledger in words: where the compute went, and what a step and a token cost."""

from __future__ import annotations

from scalerl.accounting.ledger import Ledger, Row
from scalerl.core.units import counted, format_number
from scalerl.records.cost import Activity
from scalerl.reports import words
from scalerl.reports.tables import Table

_UNKNOWN = ""


def ledger_table(ledger: Ledger) -> Table:
    """One row for each activity and what of it, `unbooked` among them; columns in which nothing was counted are left out."""
    is_by_device = any(row.device for row in ledger.rows)
    columns = [
        ("device", [row.device or "none" if is_by_device else _UNKNOWN for row in ledger.rows]),
        ("activity", [name_of(row) for row in ledger.rows]),
        ("device-s", [_seconds(row.device_s) for row in ledger.rows]),
        ("share", [_share(row.share) for row in ledger.rows]),
        ("off-device s", [_seconds(row.off_device_s) for row in ledger.rows]),
        ("FLOP", [_amount(row.flops) for row in ledger.rows]),
        ("padding FLOP", [_amount(row.overhead_flops) for row in ledger.rows]),
        ("tokens", [_amount(row.tokens) for row in ledger.rows]),
        ("USD", [_dollars(row.usd) for row in ledger.rows]),
    ]
    shown = [(head, cells) for head, cells in columns if any(cells)]
    caption = f"Where {words.device_time(ledger.elapsed_device_s)} went"
    return Table(caption, tuple(head for head, _ in shown), tuple(zip(*(cells for _, cells in shown), strict=True)))


def costs_of(ledger: Ledger) -> Table:
    """What follows from the rows: before RL, a step, a thousand tokens, grading, waste, what nobody measured."""
    warm_start = ledger.of(Activity.WARM_START)
    facts = [
        (
            "before RL",
            _joined(
                f"{_seconds(ledger.base_device_s)} device-s" if ledger.base_device_s else "", _flop(sum(row.flops for row in warm_start))
            ),
        ),
        ("a step, in the mean", _per_step(ledger)),
        (
            "1,000 generated tokens",
            "" if ledger.device_s_per_1000_tokens is None else f"{format_number(ledger.device_s_per_1000_tokens)} device-s",
        ),
        ("caches computed anew", _reprefill(ledger)),
        ("decoding stood still for pushes", _waits(ledger)),
        ("grading", _grading(ledger)),
        ("padding and recomputation", _overhead(ledger.rows)),
        ("repeated after resumes", _wasted(ledger)),
        ("unbooked", "" if ledger.unbooked_share is None else f"{ledger.unbooked_share:.2%} of all device-seconds"),
        ("in all", "" if ledger.usd is None else f"{_dollars(ledger.usd)} USD"),
    ]
    return Table("What that means", ("what", "cost"), tuple((what, cost) for what, cost in facts if cost))


def name_of(row: Row) -> str:
    """A row in words: the activity, and what of it."""
    activity = row.activity.replace("_", " ")
    return f"{activity}: {row.detail}" if row.detail else activity


def _per_step(ledger: Ledger) -> str:
    if ledger.device_s_per_step is None or ledger.flops_per_step is None:
        return ""
    usd = "" if ledger.usd_per_step is None else f"{_dollars(ledger.usd_per_step)} USD"
    steps = f"over {counted(ledger.num_steps, 'step')}"
    return f"{_joined(f'{format_number(ledger.device_s_per_step)} device-s', _flop(ledger.flops_per_step), usd)} {steps}"


def _reprefill(ledger: Ledger) -> str:
    rows = ledger.of(Activity.REPREFILL)
    seconds, tokens = sum(row.device_s for row in rows), sum(row.tokens for row in rows)
    generated_s = sum(row.device_s for row in ledger.of(Activity.GENERATE) if not row.detail)
    if not tokens:
        return ""
    share = words.share(seconds / (seconds + generated_s))
    return _joined(f"{_amount(tokens)} tokens", f"{_seconds(seconds)} device-s", f"{share} of it and generation together")


def _waits(ledger: Ledger) -> str:
    if not ledger.num_pushes:
        return ""
    return f"{_seconds(ledger.push_waited_s)} s over {ledger.num_pushes:,} pushes"


def _grading(ledger: Ledger) -> str:
    rows = ledger.of(Activity.GRADE)
    if not rows or ledger.grading_share is None:
        return ""
    usd = sum(row.usd or 0.0 for row in rows)
    seconds = sum(row.device_s + row.off_device_s for row in rows)
    share = f"{_seconds(seconds)} s, {words.share(ledger.grading_share)} of the run's device-seconds"
    return _joined(share, f"{_dollars(usd)} USD" if usd else "")


def _overhead(rows: tuple[Row, ...]) -> str:
    overhead, useful = sum(row.overhead_flops for row in rows), sum(row.flops for row in rows)
    return f"{_flop(overhead)}, {words.share(overhead / (overhead + useful))} of all operations" if overhead else ""


def _wasted(ledger: Ledger) -> str:
    if not ledger.wasted_device_s and not ledger.wasted_flops:
        return ""
    return _joined(counted(ledger.wasted_steps, "step"), f"{_seconds(ledger.wasted_device_s)} device-s", _flop(ledger.wasted_flops))


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _seconds(seconds: float) -> str:
    """Seconds to a tenth, whole ones from a thousand on; what is there is never `0.0`."""
    if not seconds:
        return _UNKNOWN
    return "<0.1" if abs(seconds) < 0.05 else f"{seconds:,.1f}" if abs(seconds) < 1000.0 else f"{seconds:,.0f}"


def _share(share: float | None) -> str:
    return words.share(share) if share else _UNKNOWN


def _amount(amount: float) -> str:
    return format_number(amount) if amount else _UNKNOWN


def _flop(flops: float) -> str:
    return f"{format_number(flops)} FLOP" if flops else ""


def _dollars(usd: float | None) -> str:
    if usd is None or abs(usd) < 1e-6:
        return _UNKNOWN
    return f"{usd:,.2f}" if usd >= 1.0 else f"{usd:.2g}"
