"""Fits as a static figure: what each saw, what it forecast, what came, and the power law beside it.

    write_figure(fit, "forecast.svg")

Drawn with matplotlib, which only `_figure.py` needs. The SVG is the same bytes on every run: text as paths, no date, fixed ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scalerl.core.errors import ScalerlError, UsageError
from scalerl.core.text import printable
from scalerl.curves.result import Fit
from scalerl.reports import words

_FORMATS = (".svg", ".png", ".pdf")
_MOST_FITS = 20


def write_figure(fits: Fit | Sequence[Fit], path: str | Path, *, title: str | None = None) -> None:
    """Draw a fit, or several one below the other, to `path`, whose suffix (`.svg`, `.png`, `.pdf`, in any case) says how.

    Above each stand its name, where there are several, its answer and its doubts; `title` replaces that of a single fit.

    Raises:
        UsageError: the suffix is another one, or the fits are none or too many to look at.
        ScalerlError: matplotlib is not installed, or the file cannot be written.
    """
    fits, path = [fits] if isinstance(fits, Fit) else list(fits), Path(path)
    if path.suffix.lower() not in _FORMATS:
        raise UsageError(f"no figure is drawn as '{path.suffix}'", where=str(path), remedy="choose one of " + ", ".join(_FORMATS))
    if not 1 <= len(fits) <= _MOST_FITS:
        raise UsageError(f"{len(fits)} fits make no figure", where=str(path), remedy=f"choose 1 to {_MOST_FITS}, or write a report")
    try:
        from scalerl.reports._figure import draw  # noqa: PLC0415  (matplotlib is no dependency of the package)
    except ModuleNotFoundError:
        raise ScalerlError(
            "a figure needs matplotlib, which is not installed", remedy="install it with: pip install 'scalerl[plot]'"
        ) from None
    try:
        draw(fits, path, titles=[title] if title and len(fits) == 1 else [_title(fit, among=len(fits)) for fit in fits])
    except OSError as error:
        raise ScalerlError(
            f"the figure cannot be written ({error.strerror or error})", where=str(path), remedy="choose another folder"
        ) from None


def _title(fit: Fit, *, among: int) -> str:
    """The answer and the doubts, after the curve's name where several share the figure."""
    name = [f"{fit.curve.name}:"] if among > 1 else []
    return printable(" ".join((*name, words.answer(fit), *fit.doubts)))
