"""What a counter of compute gives, a running total or the amount of each step: its numbers decide, and its name where they do not.

Names mislead: `total_flops` may be the FLOPs of all devices in one step, and `gpu_hours` those of a step. Read the wrong
way, a run costs its last step or a thousand times its bill.

    an amount    keeps its level while the steps go on, or grows far less than they do, or falls to a value that no process
                 starts again from
    a total      grows in step with the steps; falls only where a process starts again, at next to nothing
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from scalerl.importers.tables.lineage import Counts, is_time_stamp, step_before
from scalerl.records.curve import FloatArray

_OFTEN_FALLS, _MOSTLY_RISES = 0.2, 2
"""Where more than this share of its changes are falls of any kind, a counter whose name says nothing gives amounts; whatever the
name says, it does where it falls again and again and does not rise twice as often."""
_STARTS_AGAIN = 0.5
"""A total that falls has started again: below this share of what it was, or within two rows' usual growth."""
_LEVEL, _LEVEL_PASSED = 0.1, 2.0
"""Numbers that differ by at most this share while the steps double are amounts."""
_IN_STEP, _IN_STEP_PASSED, _IN_STEP_ROWS = 2.0, 5.0, 5
"""What grows as the steps do, within this factor, while they grow fivefold and over so many rows, is a total: no step costs
five times the first in that way."""
_BEHIND = 5.0
"""What never falls and grows less than the steps by this factor, from near step 1 on, gives amounts unless its name says otherwise:
as a total, its first step would have cost more than five later ones."""
_ALIKE = 0.5
"""Rows without steps may be in any order, so that falls say little: amounts differ by less than this factor, totals by more."""


def counts_of(values: FloatArray, *, steps: FloatArray | None, named: Counts | Literal["unsaid"], if_growing: Counts) -> Counts:
    """What a counter gives.

    Args:
        values: (n,) as logged, finite, n >= 1.
        steps: (n,) of each row; None where the log counts none.
        named: what its name says.
        if_growing: the kind of total that it would be.
    """
    said = if_growing if named == "unsaid" else named
    in_order = np.arange(values.size, dtype=np.float64) if steps is None else steps
    told = _plainly(values, in_order)
    if told is None and named == "unsaid" and (_falls_often(values, in_order) or (steps is not None and falls_behind(values, steps))):
        told = "per_step"
    if told == "total":
        return if_growing if said == "per_step" else said
    is_doubtful = steps is None and (_only_falls(values) or (named != "unsaid" and values.min() <= _ALIKE * values.max()))
    if told is None or is_doubtful or (said == "clock" and _may_show_time(values)):
        return said
    return told


def _plainly(values: FloatArray, steps: FloatArray) -> Literal["total", "per_step"] | None:
    """What the numbers leave no doubt about; None where they may be both."""
    forward = np.diff(steps) > 0
    before, after = values[:-1][forward], values[1:][forward]
    growth = after - before
    if not growth.size or not (values > 0).any():
        return None
    falls, rises = growth < 0, growth > 0
    keeps_falling = falls.sum() > 1 and rises.sum() < _MOSTLY_RISES * falls.sum()
    first, passed, is_long = _passed(values, steps)
    if is_long and not keeps_falling and passed / _IN_STEP <= values[-1] / values[first] <= passed * _IN_STEP:
        return "total"
    usual_growth = float(np.median(growth[rises])) if rises.any() else 0.0
    starts_again = after <= np.maximum(_STARTS_AGAIN * before, 2.0 * usual_growth)
    is_level = passed >= _LEVEL_PASSED and values.max() - values.min() <= _LEVEL * values.max()
    return "per_step" if is_level or keeps_falling or not growth.any() or (falls & ~starts_again).any() else None


def falls_behind(values: FloatArray, steps: FloatArray) -> bool:
    """Whether a counter, (n,) at its `steps`, (n,), never falls and yet grows far less than they do, from near the first of all on."""
    forward = np.diff(steps) > 0
    if not forward.any() or not (values > 0).any() or (np.diff(values)[forward] < 0).any():
        return False
    first, passed, is_long = _passed(values, steps)
    return bool(is_long and _BEHIND * values[-1] < passed * values[first])


def _passed(values: FloatArray, steps: FloatArray) -> tuple[int, float, bool]:
    """The first row that counts something, the factor by which the steps grow from there, and whether that tells of their pace."""
    first, start = int(np.argmax(values > 0)), step_before(steps)
    passed = float((steps.max() - start) / (steps[first] - start))
    return first, passed, passed >= _IN_STEP_PASSED and int((np.diff(steps) > 0).sum()) >= _IN_STEP_ROWS


def _falls_often(values: FloatArray, steps: FloatArray) -> bool:
    """Whether this is no total that seldom starts again, and stands still only where it is repeated on rows that did not count."""
    growth = np.diff(values)[np.diff(steps) > 0]
    return bool(growth.size and (growth < 0).sum() > _OFTEN_FALLS * np.count_nonzero(growth))


def _only_falls(values: FloatArray) -> bool:
    """Whether these may be the rows of a total, newest first."""
    return bool((np.diff(values) < 0).all())


def _may_show_time(values: FloatArray) -> bool:
    """Whether this may be a clock, which begins anywhere."""
    return is_time_stamp(values) or bool((np.diff(values) > 0).all())
