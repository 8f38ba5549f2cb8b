"""The bounded law of RL compute: mean = R0 + (A - R0) / (1 + (C_mid / C)^B), equation 1 of arXiv 2510.13786."""

from __future__ import annotations

import math
from typing import Self

import numpy as np
from pydantic import Field, PositiveFloat, model_validator
from scipy.special import expit

from scalerl.curves.laws import Law, Parameter
from scalerl.records.curve import FloatArray


class Sigmoid(Law):
    """Half of the gain is reached at C_mid; the larger B, the faster the ceiling is approached."""

    B_centre: float = Field(default=2.0, gt=0.0)
    """Median of the prior of B: printed fits of 8B models lie between 1.1 and 5, most near 2."""
    B_log_sd: float = Field(default=0.5, gt=0.0)
    """Standard deviation of log B."""
    B_range: tuple[PositiveFloat, PositiveFloat] = (0.3, 8.0)
    """B lies between these: below the first a climb takes more decades of compute than any log has."""
    early_phase: float = Field(default=0.65, ge=0.0, lt=1.0)
    """Prior probability that a fast early phase comes before the climb; 0 fits one regime alone."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        low, high = self.B_range
        if not low < high:
            raise ValueError(f"B_range {low:g} .. {high:g} is empty: give the smaller exponent first")
        return self

    def chance_of_early_phase(self) -> float:
        """As set."""
        return self.early_phase

    def parameters(self, log_last: float) -> tuple[Parameter, ...]:
        """C_mid from a little before the first point to ten times the last, and B."""
        low, high = self.B_range
        return (
            Parameter("C_mid", -1.0, log_last + math.log(10.0), is_compute=True),
            Parameter("B", math.log(low), math.log(high), log_centre=math.log(self.B_centre), log_sd=self.B_log_sd),
        )

    def progress(self, log_compute: FloatArray, *log_parameters: FloatArray) -> FloatArray:
        """S = 1 / (1 + (C_mid / C)^B), written as a logistic function of log C so that C = 0 is exact."""
        log_C_mid, log_B = log_parameters
        share: FloatArray = expit(np.exp(log_B) * (log_compute - log_C_mid))
        return share
