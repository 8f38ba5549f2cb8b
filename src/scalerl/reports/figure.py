"""One fit as a static figure: what it saw, what it forecast, what came, and the power law beside it.

    write_figure(fit, Path("forecast.svg"))

Drawn with matplotlib, which only `_figure.py` needs. The SVG is the same bytes on every run: text as paths, no date, fixed ids.
"""

from __future__ import annotations

from pathlib import Path

from scalerl.core.errors import ScalerlError, UsageError
from scalerl.core.text import printable
from scalerl.curves.result import Fit
from scalerl.reports import words

_FORMATS = (".svg", ".png", ".pdf")


def write_figure(fit: Fit, path: Path, *, title: str | None = None) -> None:
    """Draw `fit` to `path`, whose suffix (`.svg`, `.png`, `.pdf`) says how; `title` is the fit's answer and doubts if left out.

    Raises:
        UsageError: the suffix is another one.
        ScalerlError: matplotlib is not installed, or the file cannot be written.
    """
    if path.suffix not in _FORMATS:
        raise UsageError(f"no figure is drawn as '{path.suffix}'", where=str(path), remedy="choose one of " + ", ".join(_FORMATS))
    try:
        from scalerl.reports._figure import draw  # noqa: PLC0415  (matplotlib is no dependency of the package)
    except ModuleNotFoundError:
        raise ScalerlError(
            "a figure needs matplotlib, which is not installed", remedy="install it with: pip install 'scalerl[dev]'"
        ) from None
    try:
        draw(fit, path, title=printable(title or " ".join((words.answer(fit), *fit.doubts))))
    except OSError as error:
        raise ScalerlError(
            f"the figure cannot be written ({error.strerror or error})", where=str(path), remedy="choose another folder"
        ) from None
