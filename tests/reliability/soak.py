"""A long run of tiny steps, watched from outside: memory, files, threads and shared memory must not grow with its length.

    python -m tests.reliability.soak --steps 2000
    python -m tests.reliability.soak --hours 2

What is held against each other are medians of a window after the warm-up (a quarter of the training) and of the last tenth.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from scalerl.accounting.metrics_stream import METRICS_FILE
from scalerl.records.events import StepFinished
from scalerl.runs import RunDirectory
from tests.reliability.processes import Life

SETTINGS = (
    "runtime.type=processes",
    "pipeline.k=8",
    "batch={ prompts = 2, group = 2 }",
    "curriculum.selector.type=uniform",
    "curriculum.filters=[]",
    "warm_start.steps=40",
    "evaluation.every_steps=20",
    "checkpoints.every_steps=20",
)
WARM_UP = (0.25, 0.4)
"""Shares of the training between which a quantity is taken for its steady value."""
END = (0.9, 1.0)
LARGEST_GROWTH = 0.05
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6


@dataclass(frozen=True, slots=True)
class Sample:
    """What one process holds at a moment."""

    resident_mb: float
    num_files: int
    num_threads: int
    num_mappings: int
    """Of shared memory."""

    @classmethod
    def of(cls, pid: int) -> Sample:
        """Read it from /proc.

        Raises:
            OSError: the process is gone.
        """
        process = Path(f"/proc/{pid}")
        mappings = (process / "maps").read_text().splitlines()
        return cls(
            resident_mb=int((process / "statm").read_text().split()[1]) * PAGE_MB,
            num_files=len(list((process / "fd").iterdir())),
            num_threads=len(list((process / "task").iterdir())),
            num_mappings=sum("memfd:" in mapping or "/dev/shm" in mapping for mapping in mappings),
        )


@dataclass(frozen=True, slots=True)
class Trend:
    """One quantity of one process, after the warm-up and in the end."""

    role: str
    quantity: str
    early: float
    late: float

    @property
    def is_flat(self) -> bool:
        """Memory may breathe; what is counted may not grow at all."""
        return self.late <= self.early * (1.0 + LARGEST_GROWTH if self.quantity == "resident_mb" else 1.0)

    def __str__(self) -> str:
        growth = self.late / self.early - 1.0 if self.early else 0.0
        return f"{self.role:12} {self.quantity:12} {self.early:10.1f} {self.late:10.1f} {growth:+8.1%} {'' if self.is_flat else 'GROWS'}"


def soak(folder: Path, *budget: str, every_s: float) -> list[Trend]:
    """Run for a `budget`, looking every so many seconds; the trends of each role's quantities."""
    in_memory = set(Path("/dev/shm").iterdir())
    life = Life(folder, *SETTINGS, *budget)
    samples: dict[str, list[Sample]] = {}
    life.wait_for((folder / METRICS_FILE).exists)
    # When the roles are gone, the report is written, which takes memory of its own.
    while "trainer" in (roles := life.roles()):
        for role, pid in roles.items():
            with suppress(OSError):
                samples.setdefault(role, []).append(Sample.of(pid))
        time.sleep(every_s)
    assert life.end() == 0, life.told()
    assert set(Path("/dev/shm").iterdir()) <= in_memory
    return [trend for role, taken in samples.items() for trend in growth(role, taken)]


def growth(role: str, samples: Sequence[Sample]) -> list[Trend]:
    """The trend of each quantity over a role's samples, which are evenly spaced."""
    return [
        Trend(role, quantity, _median(samples, quantity, WARM_UP), _median(samples, quantity, END))
        for quantity in Sample.__dataclass_fields__
    ]


def _median(samples: Sequence[Sample], quantity: str, window: tuple[float, float]) -> float:
    first, last = (int(share * len(samples)) for share in window)
    return median(float(getattr(sample, quantity)) for sample in samples[first:last])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two looks")
    arguments = parser.parse_args()
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        trends = soak(run, f"budget.steps={arguments.steps}", f"budget.hours={arguments.hours}", every_s=arguments.every)
        num_steps = sum(isinstance(entry.event, StepFinished) for entry in RunDirectory.open(run).events())
    print(f"{num_steps} steps in {time.monotonic() - started_s:.0f} s")
    print(f"{'role':12} {'quantity':12} {'early':>10} {'late':>10} {'growth':>8}", *trends, sep="\n")
    raise SystemExit(int(not all(trend.is_flat for trend in trends)))


if __name__ == "__main__":
    main()
