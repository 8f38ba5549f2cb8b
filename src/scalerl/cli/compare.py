"""Compare recipes by their training logs: which ends higher, which climbs faster, and where their curves cross.

    scalerl compare runs/cispo-0 runs/cispo-1 runs/dapo-0 --arm "CISPO=*cispo-*" --arm "DAPO=*dapo-*"
    scalerl compare sweep.csv --by loss --seeds seed

Every curve is a recipe of its own unless a column numbers seeds or a pattern gathers several. Curves of different tasks or
data sets are compared apart.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer

from scalerl.cli._curve_options import CurveOptions, compute_range, takes_curve_options
from scalerl.cli.report import is_run, write_report
from scalerl.core.errors import UsageError
from scalerl.curves.arms import Arm
from scalerl.curves.comparison import compare as compare_arms
from scalerl.curves.result import Fit
from scalerl.reports import console_for, print_comparison, print_tables, tables, to_json

app = typer.Typer(add_completion=False)

_PARTS = " / "
"""Between the parts of a curve's name: a value of each `--by` column, and the data set."""


@app.command(help=__doc__.partition("\n")[0])
@takes_curve_options
def compare(
    options: CurveOptions,
    seeds: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column that numbers the runs of one recipe.")] = None,
    arms: Annotated[
        list[str] | None, typer.Option("--arm", metavar="NAME=PATTERN", help="Recipe whose runs or logs match, e.g. 'CISPO=*cispo-*'.")
    ] = None,
    within: Annotated[
        str | None, typer.Option(metavar="LO:HI", help="Look for crossings here. Default: up to twice the last point.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
    report: Annotated[Path | None, typer.Option("--report", metavar="FILE.html", help="Write the HTML report too.")] = None,
) -> None:
    """Print the comparison of `options` and leave with 4 where nothing could be answered."""
    if seeds is not None:
        options = replace(options, by=seeds if options.by is None else f"{options.by},{seeds}")
    fits = options.fits()
    patterns = [_pattern(text) for text in arms or ()]
    compared = [
        compare_arms(gathered, within=None if within is None else compute_range(within, gathered[0].axis, flag="--within"), domain=domain)
        for domain, gathered in _domains(fits, seeds, patterns).items()
    ]
    if report is not None:
        write_report(fits, report, title=options.title(), compared=compared)
    if as_json:
        print(to_json(fits, compared=compared))
    else:
        console = console_for(sys.stdout)
        for one in compared:
            print_comparison(one, console)
        print_tables([tables.comparison(fits)], console)
    raise typer.Exit(options.exit_code(fits))


def _domains(fits: Sequence[Fit], seeds: str | None, patterns: Sequence[tuple[str, str]]) -> dict[str, list[Arm]]:
    """The arms by what they were evaluated on, each with the fits of its runs."""
    homes = _homes(fits)
    runs: dict[str, dict[str, list[Fit]]] = defaultdict(lambda: defaultdict(list))
    for fit in fits:
        domain, name = _labels(fit, seeds, homes[fit.curve.source])
        arm = next((arm for arm, pattern in patterns if any(fnmatchcase(text, pattern) for text in (name, fit.curve.source))), name)
        runs[domain][arm].append(fit)
    for arm, pattern in patterns:
        if not any(arm in arms for arms in runs.values()):
            names = ", ".join(sorted({name for arms in runs.values() for name in arms}))
            raise UsageError(
                f"no run is left that matches '{pattern}'",
                where="--arm",
                remedy=f"write a pattern of these names or of their paths: {names}",
            )
    return {domain: [Arm(name, tuple(runs)) for name, runs in arms.items()] for domain, arms in runs.items()}


@dataclass(frozen=True, slots=True)
class _Home:
    """The log that curves come from."""

    name: str
    """Its file's name, or its path where another log has that name."""
    tells_domains: bool
    """Whether it holds several tasks or data sets, or says which one it is of."""


def _homes(fits: Sequence[Fit]) -> dict[str, _Home]:
    """The logs by their path."""
    metrics = defaultdict(set)
    for fit in fits:
        metrics[fit.curve.source].add(fit.curve.metric)
    count = Counter(Path(source).stem for source in metrics)
    return {
        source: _Home(
            name=source if count[Path(source).stem] > 1 else Path(source).stem,
            tells_domains=len(names) > 1 or is_run(Path(source)),
        )
        for source, names in metrics.items()
    }


def _labels(fit: Fit, seeds: str | None, home: _Home) -> tuple[str, str]:
    """What a fit's curve was evaluated on, where its log tells, and its name without that and without its seed."""
    source = fit.curve.source
    name = fit.curve.name.removeprefix(f"{source}: ")  # which stands before names that several logs have
    parts = name.split(_PARTS)
    domain = parts.pop() if home.tells_domains else ""
    kept = [part for part in parts if seeds is None or not part.startswith(f"{seeds}=")]
    if seeds is not None and len(kept) == len(parts):
        raise UsageError(f"'{seeds}' holds no numbers", where="--seeds", remedy="gather the runs of a recipe with --arm NAME=PATTERN")
    rest = _PARTS.join(kept)
    if rest in ("", Path(source).stem):
        return domain, home.name
    return domain, rest if name == fit.curve.name else f"{home.name}: {rest}"


def _pattern(text: str) -> tuple[str, str]:
    """A recipe's name and the pattern of its runs."""
    name, equals, pattern = text.partition("=")
    if not (name and equals and pattern):
        raise UsageError(f"'{text}' names no recipe", where="--arm", remedy="write NAME=PATTERN, for example 'CISPO=*cispo-*'")
    return name, pattern
