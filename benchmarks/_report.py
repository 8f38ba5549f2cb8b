"""How benchmarks end: what must hold, whether it does, and one JSON object of figures as the last line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Requirement:
    """A figure that has to lie between two limits."""

    what: str
    value: float
    least: float = -math.inf
    most: float = math.inf

    @property
    def holds(self) -> bool:
        """Whether it does; NaN does not."""
        return self.least <= self.value <= self.most

    def __str__(self) -> str:
        limits = [f">= {self.least:g}"] * math.isfinite(self.least) + [f"<= {self.most:g}"] * math.isfinite(self.most)
        return f"{'holds' if self.holds else 'FAILS'}  {self.what}: {self.value:.4g} ({', '.join(limits)})"


def finish(requirements: Sequence[Requirement], figures: Mapping[str, Any]) -> int:
    """Print the requirements and, as the last line, the figures; the exit status, 1 where a requirement does not hold."""
    print()
    print(*requirements, sep="\n")
    print(json.dumps({name: round(value, 5) if isinstance(value, float) else value for name, value in figures.items()}))
    return 0 if all(requirement.holds for requirement in requirements) else 1
