"""When held-out evaluations take place: log-spaced early, where curves are steep, and regularly later."""

from __future__ import annotations


def is_due(step: int, *, every_steps: int) -> bool:
    """Whether the version after `step` is evaluated: at 0, at the Fibonacci numbers below `every_steps`, and at its multiples."""
    return step % every_steps == 0 or (step < every_steps and _is_fibonacci(step))


def _is_fibonacci(number: int) -> bool:
    low, high = 1, 2
    while low < number:
        low, high = high, low + high
    return low == number
