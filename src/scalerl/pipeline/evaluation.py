"""When held-out evaluations take place: log-spaced early, where curves are steep, and regularly later."""

from __future__ import annotations

import math


def is_due(step: int, *, every_steps: int, early_growth: float) -> bool:
    """Whether the version after `step` is evaluated: at 0, at 1, each time the steps have grown by the factor, and regularly once
    that would take `every_steps` or more."""
    early = 1
    while early < step:
        following = max(early + 1, math.ceil(early * early_growth))
        if following - early >= every_steps:
            return step % every_steps == 0
        early = following
    return step in (0, early)
