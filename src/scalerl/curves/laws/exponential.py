"""Exponential saturation: mean = A - (A - R0) exp(-C / c), the law of a rise whose rate is proportional to what is left.

It reaches its ceiling sooner than the sigmoid: each further c of compute, not each factor of compute, divides the
distance to A by e.
"""

from __future__ import annotations

import math

import numpy as np

from scalerl.curves.laws import Law, Parameter
from scalerl.records.curve import FloatArray

_LARGEST_RATIO = 700.0
"""exp of much more overflows; exp of this many c is 0 all the same."""


class Exponential(Law):
    """63 % of the gain is reached at c, 95 % at 3 c."""

    def parameters(self, log_last: float) -> tuple[Parameter, ...]:
        """c from a third of the first compute, the rise all but over there, to ten times the last, the points all but on a line."""
        return (Parameter("c", -math.log(3.0), log_last + math.log(10.0), is_compute=True),)

    def progress(self, log_compute: FloatArray, *log_parameters: FloatArray) -> FloatArray:
        """S = 1 - exp(-C / c)."""
        (log_c,) = log_parameters
        share: FloatArray = -np.expm1(-np.exp(np.minimum(log_compute - log_c, _LARGEST_RATIO)))
        return share
