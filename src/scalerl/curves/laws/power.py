"""The power law: mean = A - D / C^B, the limit of the sigmoid far above C_mid that arXiv 2510.13786 compares with.

Written with R_first, the mean at the first point, in place of D = (A - R_first) C_first^B: R_first is a reward, whose
bounds are known.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from scalerl.curves.laws import Law, Parameter
from scalerl.records.curve import FloatArray

_LARGEST_EXPONENT = 500.0
"""exp of much more overflows; the mean is far below every bound all the same."""


class Power(Law):
    """No inflection: each factor of compute divides the distance to A by the same number."""

    start: ClassVar[str] = "R_first"
    reaches_zero: ClassVar[bool] = False

    def parameters(self, log_last: float) -> tuple[Parameter, ...]:  # noqa: ARG002
        """B, down to where the law is all but a straight line in log C."""
        return (Parameter("B", math.log(0.03), math.log(8.0)),)

    def progress(self, log_compute: FloatArray, *log_parameters: FloatArray) -> FloatArray:
        """S = 1 - (C_first / C)^B, negative before the first point."""
        (log_B,) = log_parameters
        share: FloatArray = -np.expm1(np.minimum(-np.exp(log_B) * log_compute, _LARGEST_EXPONENT))
        return share
