"""The options of every verb that reads logs and fits their curves, declared once.

    @app.command()
    @takes_curve_options
    def fit(options: CurveOptions, as_json: JsonOption = False) -> None: ...

`takes_curve_options` writes the fields of `CurveOptions` into the command's signature in place of `options`, since Typer reads
signatures.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from scalerl.core.errors import UsageError
from scalerl.core.units import Axis, parse_quantity
from scalerl.curves import fit
from scalerl.curves.result import Fit, Status
from scalerl.importers import Choice, read_curves
from scalerl.records.curve import Curve

EXIT_UNANSWERED = 4
_ANSWERED = {Status.OK, Status.SATURATED}
"""Statuses that name a ceiling."""


@dataclass(frozen=True, slots=True)
class CurveOptions:
    """What the user asks of logs and fits, as the command line gives it."""

    logs: Annotated[
        list[Path], typer.Argument(metavar="LOG", help="Training logs: CSV, JSONL, and others by their content.", show_default=False)
    ]
    x: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of compute, or an axis such as 'tokens'. Default: found and said.")
    ] = None
    y: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the reward. Default: the held-out evaluation.")] = None
    by: Annotated[str | None, typer.Option(metavar="COLUMN", help="Make one curve for each value of this column.")] = None
    where: Annotated[list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Read only these rows; repeat for more.")] = None
    gpus: Annotated[float | None, typer.Option(metavar="N", help="GPUs of the whole run: turns seconds into GPU-hours.")] = None
    bounds: Annotated[str | None, typer.Option(metavar="LO:HI", help="Least and largest reward that the grader can give.")] = None
    r0: Annotated[str, typer.Option(metavar="measured|free|VALUE", help="The reward at zero compute.")] = "measured"
    window: Annotated[
        str | None, typer.Option(metavar="LO:HI", help="Compute that enters the fit, e.g. 1.5k:50k; one end may be left out.")
    ] = None
    law: Annotated[str, typer.Option(metavar="NAME|paper", help="The law to fit; 'paper' repeats the procedure of arXiv 2510.13786.")] = (
        "sigmoid"
    )
    at: Annotated[str | None, typer.Option(metavar="C,...", help="Forecast an evaluation at these amounts of compute, e.g. 100k.")] = None
    level: Annotated[float, typer.Option(metavar="P", help="Probability of every interval.")] = 0.9
    strict: Annotated[
        bool, typer.Option("--strict", help=f"Leave with {EXIT_UNANSWERED} if any curve has no answer, not only if all have none.")
    ] = False

    def fits(self) -> list[Fit]:
        """Every curve of every log, fitted.

        Raises:
            UsageError: an option does not have its form, or names what a log does not have.
            DataError: a log cannot be used.
        """
        curves = _told_apart([curve for log in self.logs for curve in read_curves(log, choice=self.choice)])
        return [self._fit(curve) for curve in curves]

    @property
    def choice(self) -> Choice:
        """What the options ask of the logs' columns.

        Raises:
            UsageError: an option does not have its form.
        """
        return Choice.of(x=self.x, y=self.y, by=self.by, gpus=self.gpus, bounds=self.bounds, where=self.where or ())

    def exit_code(self, fits: Sequence[Fit]) -> int:
        """0, or 4 where no curve has an answer (with `--strict`: where any has none)."""
        answered = [fit.status in _ANSWERED for fit in fits]
        return 0 if (all(answered) if self.strict else any(answered)) else EXIT_UNANSWERED

    def title(self) -> str:
        """What a report of these logs is called."""
        others = f" and {len(self.logs) - 1} more" if len(self.logs) > 1 else ""
        return f"{self.logs[0].name}{others}: what more compute will bring"

    def _fit(self, curve: Curve) -> Fit:
        return fit(
            curve,
            law=self.law,
            r0=_start(self.r0),
            window=None if self.window is None else compute_range(self.window, curve.axis, flag="--window"),
            level=self.level,
            at=tuple(amount(text, curve.axis, flag="--at") for text in listed(self.at, flag="--at", example="50k,100k")),
        )


def takes_curve_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command(options, ...)` the fields of `CurveOptions` as parameters of its own."""
    names = [field.name for field in fields(CurveOptions)]

    def with_options(**values: Any) -> None:
        command(CurveOptions(**{name: values.pop(name) for name in names}), **values)

    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    functools.update_wrapper(with_options, command)
    vars(with_options)["__signature__"] = inspect.Signature([*_parameters(), *keywords])
    return with_options


def _parameters() -> list[inspect.Parameter]:
    hints = get_type_hints(CurveOptions, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(CurveOptions)
    ]


def _told_apart(curves: Sequence[Curve]) -> list[Curve]:
    """The curves, with the log's path before every name that another curve has too."""
    count = Counter(curve.name for curve in curves)
    return [replace(curve, name=f"{curve.source}: {curve.name}") if count[curve.name] > 1 else curve for curve in curves]


def _start(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def listed(text: str | None, *, flag: str, example: str) -> list[str]:
    """The parts of `A,B,...`; none where the flag is not given.

    Raises:
        UsageError: it is given and lists nothing.
    """
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if text is not None and not parts:
        raise UsageError(f"'{text}' lists nothing", where=flag, remedy=f"write for example {example}, or leave it out")
    return parts


def compute_range(text: str, axis: Axis, *, flag: str) -> tuple[float, float]:
    """The range of compute that `text` names, `LOW:HIGH` of which one may be left out.

    Raises:
        UsageError: it does not have that form.
    """
    low, colon, high = text.partition(":")
    if not colon:
        raise UsageError(f"'{text}' is no window", where=flag, remedy="write LOW:HIGH, for example 1.5k:50k")
    return (amount(low, axis, flag=flag) if low.strip() else 0.0, amount(high, axis, flag=flag) if high.strip() else float("inf"))


def amount(text: str, axis: Axis, *, flag: str) -> float:
    """The amount of compute that `text` names.

    Raises:
        UnitError: it is none on `axis`.
    """
    return parse_quantity(text, axis, where=flag).value
