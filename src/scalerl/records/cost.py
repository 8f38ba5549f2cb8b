"""Cost: what one piece of work took, on which device, for what."""

from __future__ import annotations

import math
from enum import StrEnum

import msgspec


class Activity(StrEnum):
    """What a device was doing. Idle is measured at each wait, never as what is left over."""

    GENERATE = "generate"
    """Prefill of prompts and decoding."""
    REPREFILL = "reprefill"
    """Computing the cache of requests in flight anew after a weight update."""
    GRADE = "grade"
    TRAIN = "train"
    PUSH = "push"
    """Handing new weights to the generators, and taking them."""
    EVALUATE = "evaluate"
    CHECKPOINT = "checkpoint"
    WARM_START = "warm_start"
    """Compute before RL; never on the curve's axis."""
    LOAD = "load"
    """Starting processes and loading weights."""
    IDLE = "idle"
    LOST = "lost"
    """What a process did that was gone before it told of it."""


class Cost(msgspec.Struct, frozen=True, omit_defaults=True):
    """Device-seconds, FLOPs, tokens and dollars of one piece of work."""

    device: str | None
    """The slot of the run that worked or waited, e.g. `generator:0`; None for work on somebody else's, e.g. a hosted judge."""
    activity: Activity
    seconds: float = 0.0
    """Seconds of this one device; they are device-seconds of the run only where `device` is one of its slots."""
    flops: float = 0.0
    """Useful floating-point operations: unpadded tokens, attention at true context, head included, backward twice forward."""
    overhead_flops: float = 0.0
    """Operations on padding, and those done again to save memory."""
    tokens: int = 0
    usd: float = 0.0
    """Dollars billed by a third party; the price of the run's own devices is added by the ledger."""
    detail: str = ""
    """What was waited for, or which grader and model it was."""

    def __post_init__(self) -> None:
        amounts = (self.seconds, self.flops, self.overhead_flops, self.tokens, self.usd)
        if not all(0.0 <= amount < math.inf for amount in amounts):
            raise ValueError(f"a cost is finite and not negative: {self!r}")

    def __add__(self, other: Cost) -> Cost:
        """Two costs of one device, activity and detail as one."""
        assert (self.device, self.activity, self.detail) == (other.device, other.activity, other.detail), "costs of one kind"
        return Cost(
            self.device,
            self.activity,
            self.seconds + other.seconds,
            self.flops + other.flops,
            self.overhead_flops + other.overhead_flops,
            self.tokens + other.tokens,
            self.usd + other.usd,
            self.detail,
        )
