"""Replay one scenario, or look for one that breaks something.

    python -m scalerl.pipeline.simulation 7                          scenario 7: what it is, its events, what breaks and what that takes
    python -m scalerl.pipeline.simulation --seeds 100000 --jobs 2    the scenarios 0 to 99,999; `make simulate`

Exit status 1 if something breaks.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields

import msgspec

from scalerl.core.events import Entry
from scalerl.pipeline.simulation import Report, drawn, failure
from scalerl.pipeline.simulation.scenario import Scenario
from scalerl.records.events import Event

_CHUNK = 100
"""Scenarios that a process is given at a time."""


def main() -> int:
    """Run with the command line's settings."""
    parser = argparse.ArgumentParser(prog="python -m scalerl.pipeline.simulation", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("seed", type=int, nargs="?", help="the scenario to replay")
    parser.add_argument("--seeds", type=int, default=1000, help="without a scenario: how many to try")
    parser.add_argument("--first", type=int, default=0, help="the first one of them")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return replay(arguments.seed)
    return search(range(arguments.first, arguments.first + arguments.seeds), jobs=arguments.jobs)


def replay(seed: int) -> int:
    """Print a scenario, what happens in it, and what breaks; 1 if something does."""
    scenario, report = drawn(seed), Report()
    broken = failure(scenario, report=report)
    print(f"scenario {seed}", *_told(scenario), sep="\n")
    print("events", *map(_line, report.events), sep="\n")
    print(*(f"life {number} ended: {ending}" for number, ending in enumerate(report.endings, 1)), sep="\n")
    if broken is None:
        print(f"nothing breaks; the run ended: {report.reason}")
        return 0
    without, still_broken, needed = simplest(scenario, broken)
    print(f"broken: {broken}")
    print(f"without {', '.join(without) or 'anything less'}: {still_broken}")
    print(f"what it takes: {', '.join(needed) or 'nothing that goes wrong'}")
    return 1


def simplest(scenario: Scenario, broken: str) -> tuple[list[str], str, list[str]]:
    """Leave out of a scenario, one by one, what it does not take to break something.

    Returns:
        what was left out, what breaks still, and what goes wrong in it still.
    """
    without: list[str] = []
    while True:
        for name, simpler in scenario.simplified():
            if (still_broken := failure(simpler)) is not None:
                scenario, broken = simpler, still_broken
                without.append(name)
                break
        else:
            return without, broken, [name for name, _ in scenario.simplified()]


def search(seeds: range, *, jobs: int) -> int:
    """Try scenarios, and print those that break something and how fast it went; 1 if there are any."""
    started_s = time.monotonic()
    num_broken = 0
    with ProcessPoolExecutor(jobs) as pool:
        chunks = (seeds[start : start + _CHUNK] for start in range(0, len(seeds), _CHUNK))
        for broken in pool.map(_broken, chunks):
            for seed, what in broken:
                num_broken += 1
                print(f"scenario {seed}: {what}", flush=True)
    took_s = time.monotonic() - started_s
    print(f"{len(seeds)} scenarios, {num_broken} broken, {len(seeds) / took_s:.1f} per second")
    return 1 if num_broken else 0


def _broken(seeds: range) -> list[tuple[int, str]]:
    found = ((seed, failure(drawn(seed))) for seed in seeds)
    return [(seed, what) for seed, what in found if what is not None]


def _told(scenario: Scenario) -> Iterator[str]:
    """The scenario, a line for each of its fields."""
    for part in (scenario, scenario.settings):
        yield from (f"    {one.name} = {getattr(part, one.name)}" for one in fields(part) if one.name != "settings")


def _line(entry: Entry[Event]) -> str:
    """An event on a line; costs and what is as by default are left out."""
    told = msgspec.to_builtins(entry.event)
    kind = told.pop("kind")
    told.pop("costs", None)
    return f"{entry.seq:5} {entry.time_s:10.2f} s  {kind} " + " ".join(f"{name}={value}" for name, value in told.items())


if __name__ == "__main__":
    sys.exit(main())
