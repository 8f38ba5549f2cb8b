"""What a damaged file cost: counted while it is read, told at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scalerl.core.units import counted


@dataclass(slots=True)
class Damage:
    """Damage found in one file so far."""

    num_bad: int = 0
    """Stretches that are no intact record; each holds one record or more."""
    cut_short: bool = False
    """Whether the file ends inside a record, as that of a killed run may."""

    def notes(self, name: str) -> Iterator[str]:
        """Sentences for the user about the file called `name`."""
        if self.num_bad:
            yield f"{name}: {counted(self.num_bad, 'damaged place')} left out, where a checksum or a length does not fit"
        if self.cut_short:
            yield f"{name}: the last record was cut short and left out"
