"""No climb: mean = A at every positive compute, and R0 at none. What a curve without a trend is compared with."""

from __future__ import annotations

import numpy as np

from scalerl.curves.laws import Law, Parameter
from scalerl.records.curve import FloatArray


class Constant(Law):
    """A is reached at once; without a point at zero compute R0 leaves no trace."""

    def parameters(self, log_last: float) -> tuple[Parameter, ...]:  # noqa: ARG002
        """None."""
        return ()

    def progress(self, log_compute: FloatArray, *log_parameters: FloatArray) -> FloatArray:  # noqa: ARG002
        """S = 1 for C > 0, else 0, as one row."""
        return np.isfinite(log_compute).astype(np.float64)[np.newaxis]
