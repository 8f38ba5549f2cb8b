"""How a law explains a curve: alone, or after a fast early phase.

Training often first elicits what the base model can already do, a format or a scratchpad, within a few steps, and then
sharpens it slowly. Those are two regimes and not one law. With E the course of the early phase and S that of the law,

    mean(C) = R0 (1 - E) + R1 (E - S) + A S,      E = 1 without an early phase, and R1 is then R0 itself;
                                                  E = 1 - exp(-C / c) with one

and the posterior averages both by their evidence, so that nobody has to guess where the early points end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalerl.curves.laws import Law, Parameter
from scalerl.records.curve import FloatArray

_LEAST_OF_FIRST = 3.0
"""An early phase takes more than a third of the first point's compute, or it has left no trace ..."""
_MOST_OF_LAST = 8.0
"""... and less than an eighth of the last point's, or it is no early one: a whole climb that has bent can look like one."""
_LEAST_WIDTH = 0.1
"""Of the range of log c, where all points lie close together."""
_LEAST_RATIO = 4.0
"""It is early: its compute is less than a quarter of any of the law's own."""


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """E and S of m choices of the parameters at n points."""

    S: FloatArray
    """(m, n)"""
    E: FloatArray
    """(m, n), or (1, n) without an early phase."""
    has_early_phase: bool


@dataclass(frozen=True, slots=True)
class Regime:
    """A law with or without an early phase before its climb."""

    law: Law
    log_last: float
    """Log of the last compute relative to the first positive one."""
    has_early_phase: bool
    log_prior: float
    """Log of the prior probability."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The law's nonlinear parameters, and the compute c of the early phase."""
        own = self.law.parameters(self.log_last)
        if not self.has_early_phase:
            return own
        low = -math.log(_LEAST_OF_FIRST)
        high = max(self.log_last - math.log(_MOST_OF_LAST), low + _LEAST_WIDTH)
        return (*own, Parameter("c", low, high, is_compute=True))

    def is_possible(self, log_parameters: FloatArray) -> NDArray[np.bool_]:
        """(m,) whether the early phase is early beside the law's own compute, for log parameters (m, d)."""
        if not self.has_early_phase:
            return np.ones(len(log_parameters), dtype=np.bool_)
        own = [axis for axis, parameter in enumerate(self.parameters[:-1]) if parameter.is_compute]
        return np.asarray((log_parameters[:, -1:] < log_parameters[:, own] - math.log(_LEAST_RATIO)).all(axis=1))

    def course(self, log_compute: FloatArray, log_parameters: FloatArray) -> Course:
        """E and S at `log_compute` (n,), for log parameters (m, d)."""
        columns = log_parameters.T[..., np.newaxis]
        if not self.has_early_phase:
            S = self.law.progress(log_compute, *columns)
            return Course(S, np.ones((1, log_compute.size)), has_early_phase=False)
        *own, log_c = columns
        E = 1.0 - np.exp(-np.exp(log_compute) * np.exp(-log_c))
        return Course(self.law.progress(log_compute, *own), E, has_early_phase=True)


def regimes_of(law: Law, log_last: float) -> tuple[Regime, ...]:
    """The regimes under which `law` may explain points whose last compute is exp(log_last) times the first."""
    chance = law.chance_of_early_phase()
    both = ((False, 1.0 - chance), (True, chance))
    return tuple(Regime(law, log_last, early, math.log(probability)) for early, probability in both if probability > 0.0)
