"""Laws: how the reward climbs with compute from a start level to its asymptote A. One file per law, found by its name.

Every law has the form

    mean(C) = start + (A - start) S(C),      0 <= start < A <= 1

and is nothing but its progress S, 0 at no compute and 1 in the limit. The posterior treats start and A, in which the
mean is linear, in closed form; a law declares only its nonlinear parameters, each with a prior on its logarithm.
A new law is one file, e.g. `half_life.py` for mean = A - (A - R0) 2^(-C / h):

    class HalfLife(Law):
        def parameters(self, log_last: float) -> tuple[Parameter, ...]:
            return (Parameter("h", -1.0, log_last + math.log(10.0), is_compute=True),)

        def progress(self, log_compute: FloatArray, *log_parameters: FloatArray) -> FloatArray:
            (log_h,) = log_parameters
            return -np.expm1(-math.log(2.0) * np.exp(log_compute - log_h))

Laws see log compute relative to the first point of positive compute, so that units of compute cannot matter: that
point is at 0, the last one at `log_last`, and zero compute at -inf.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtr

from scalerl.core.components import Component
from scalerl.records.curve import FloatArray


@dataclass(frozen=True, slots=True)
class Parameter:
    """A positive nonlinear parameter; its logarithm is uniform on [log_low, log_high], or normal and cut to that range."""

    name: str
    log_low: float
    log_high: float
    log_centre: float = 0.0
    log_sd: float = math.inf
    """Standard deviation of the normal prior; infinite for the uniform one."""
    is_compute: bool = False
    """Whether it is an amount of compute, with its logarithm relative to the first point."""

    @property
    def log_width(self) -> float:
        """Width of the prior's central 90 % interval in the logarithm."""
        return min(0.9 * (self.log_high - self.log_low), 3.29 * self.log_sd)

    def log_prior(self, log_value: FloatArray) -> FloatArray:
        """The log density of the prior at `log_value`, inside the range."""
        if math.isinf(self.log_sd):
            return np.full_like(log_value, -math.log(self.log_high - self.log_low))
        low, high = ((edge - self.log_centre) / self.log_sd for edge in (self.log_low, self.log_high))
        log_norm = math.log(self.log_sd * math.sqrt(2.0 * math.pi) * (ndtr(high) - ndtr(low)))
        density: FloatArray = -0.5 * ((log_value - self.log_centre) / self.log_sd) ** 2 - log_norm
        return density


class Law(Component, family="laws"):
    """Base of the family: a subclass in its own file says which parameters shape its progress S, and what S is."""

    start: ClassVar[str] = "R0"
    """What the level at S = 0 is called. Only a level called R0, the reward at zero compute, can be given by the user."""
    reaches_zero: ClassVar[bool] = True
    """Whether S(0) = 0; a law that diverges there leaves points at zero compute out."""

    def chance_of_early_phase(self) -> float:
        """Prior probability that a fast early phase comes before the climb (`curves/regimes.py`): 0 where the law knows none."""
        return 0.0

    @abstractmethod
    def parameters(self, log_last: float) -> tuple[Parameter, ...]:
        """The nonlinear parameters, for points whose last compute is exp(log_last) times the first."""

    @abstractmethod
    def progress(self, log_compute: FloatArray, *log_parameters: FloatArray) -> FloatArray:
        """S at `log_compute` (n,), for parameters of shape (m, 1): an array that broadcasts to (m, n), without warnings at -inf."""
