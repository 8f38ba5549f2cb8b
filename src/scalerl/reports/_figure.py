"""The working part of `figure.py`, which imports matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from scalerl.core.text import printable
from scalerl.core.units import format_number
from scalerl.curves.result import Band, Estimate, Fit
from scalerl.records.curve import Curve
from scalerl.reports import tables, words
from scalerl.reports.picture import Picture, has_intervals, picture_of

_INCHES, _PNG_DPI = (8.4, 4.4), 200
_DATE_OF = {".svg": "Date", ".pdf": "CreationDate"}
"""The metadata that would make each run's file another."""
_INK, _QUIET, _GRID = "#16202c", "#596676", "#e4e8ed"
_LAW, _LATER, _BESIDE, _CEILING = "#1f5fbf", "#d9660b", "#7c4dbd", "#0d8a6a"
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "path",
    "svg.hashsalt": "scalerl",
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _QUIET,
    "xtick.color": _QUIET,
    "ytick.color": _QUIET,
    "text.parse_math": False,
}


def draw(fits: Sequence[Fit], path: Path, *, titles: Sequence[str]) -> None:
    """Draw `fits` one below the other, each with its title, to `path` in the format of its suffix."""
    width, height = _INCHES
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height * len(fits)), layout="constrained", facecolor="white")
        places = figure.subfigures(len(fits), squeeze=False).flat if len(fits) > 1 else [figure]
        for fit, place, title in zip(fits, places, titles, strict=True):
            _draw(fit, place.add_subplot())
            place.suptitle(title, x=0.012, ha="left", fontsize=11.5, fontweight="bold", wrap=True)
        kind = path.suffix.lower()
        figure.savefig(path, format=kind.removeprefix("."), dpi=_PNG_DPI, metadata={_DATE_OF[kind]: None} if kind in _DATE_OF else {})


def _draw(fit: Fit, axes: Axes) -> None:
    picture = picture_of(fit)
    if picture.band is not None:
        _draw_laws(fit, picture, picture.band, axes)
    if picture.ceiling is not None and picture.ceiling.value is not None:
        _draw_ceiling(picture.ceiling, picture.ceiling.value, fit.curve, axes)
    first_shown = picture.compute_range[0]  # zero compute has no place on a logarithmic axis
    _draw_points(picture.earlier.window(first_shown), "before the window", axes, marker="o", mfc="white", mec=_QUIET)
    _draw_points(picture.fitted.window(first_shown), "fitted", axes, marker="o", mfc=_INK, mec=_INK)
    _draw_points(picture.later, "after the window", axes, marker="D", mfc=_LATER, mec="white")
    if len(picture.later):
        axes.axvline(fit.window[1], color=_QUIET, linewidth=0.9, linestyle=(0, (2, 3)), zorder=1)
    axes.set(xscale="log", xlim=picture.compute_range, ylim=picture.reward_range, ylabel=printable(fit.curve.metric))
    axes.set_xlabel(printable(fit.curve.axis.label))
    _style(axes)


def _draw_laws(fit: Fit, picture: Picture, band: Band, axes: Axes) -> None:
    assert fit.best is not None, "a band comes from a law"
    if has_intervals(fit):
        axes.fill_between(band.compute, band.low, band.high, color=_LAW, alpha=0.16, linewidth=0, label=f"{words.level(fit)} forecast band")
    for name, other in picture.beside:
        axes.plot(other.compute, other.mean, color=_BESIDE, linewidth=1.6, linestyle=(0, (5, 3)), label=tables.law_words(name))
    axes.plot(band.compute, band.mean, color=_LAW, linewidth=2.2, label=tables.law_words(fit.best.law))


def _draw_ceiling(ceiling: Estimate, value: float, curve: Curve, axes: Axes) -> None:
    axes.axhspan(ceiling.low, ceiling.high, color=_CEILING, alpha=0.10, linewidth=0, zorder=0)
    axes.axhline(value, color=_CEILING, linewidth=1.2, linestyle=(0, (1, 2)), zorder=1)
    axes.annotate(
        f"ceiling {words.reward(value, curve)}",
        (0.012, value),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        color=_CEILING,
    )


def _draw_points(points: Curve, label: str, axes: Axes, **style: Any) -> None:
    if len(points):
        axes.plot(
            points.compute,
            points.reward,
            linestyle="none",
            markersize=5,
            markeredgewidth=0.9,
            label=label,
            zorder=3,
            clip_on=False,
            **style,
        )


def _style(axes: Axes) -> None:
    """Labels at 1, 2 and 5 times powers of ten, a quiet grid, no box, and the legend where the curve is not."""
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", facecolor="white", edgecolor="none", framealpha=1.0)
