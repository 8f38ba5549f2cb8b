"""Fits on a terminal: a plot in characters, the answer in a sentence, and tables.

    print_fits(fits, console_for(sys.stdout))

Everything is printed to the rich console that is given, in its width, its encoding and, where it has any, its colours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TextIO

import numpy as np
from numpy.typing import ArrayLike
from rich import box
from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from scalerl.core.text import printable
from scalerl.core.units import counted, format_number
from scalerl.curves.backtest import Backtest
from scalerl.curves.comparison import Comparison
from scalerl.curves.result import Fit, Status
from scalerl.importers import Listing
from scalerl.records.curve import Curve, FloatArray
from scalerl.reports import comparison as comparison_words
from scalerl.reports import decisions as decision_words
from scalerl.reports import run as run_tables
from scalerl.reports import tables, words
from scalerl.reports.canvas import Canvas, Marker, Stroke, log_ticks, nice_ticks
from scalerl.reports.costs import costs_of, ledger_table
from scalerl.reports.picture import Picture, has_intervals, picture_of
from scalerl.reports.run import RunReport

_LAW = Stroke("cyan", "*")
_BAND = Stroke("blue", ".", on=1, period=3)
_CEILING = Stroke("magenta", "-", on=3, period=6)
_FITTED, _LATER, _EARLIER = Marker("bold", "●", "o"), Marker("bold yellow", "◆", "x"), Marker("dim", "○", ",")
_WIDEST_PLOT, _NARROWEST_PLOT = 110, 8
_FEWEST_CEILINGS = 3
"""Prefixes with a ceiling from which on a plot of them shows anything."""
_GAP = 2
"""Blanks between the columns of a table."""
_LONGEST_WORD = 24
"""Characters up to which a table breaks no word."""
_STATUS_STYLES = {Status.OK: "bold green", Status.SATURATED: "bold green", Status.COLLAPSED: "bold red"}


@dataclass(frozen=True, slots=True)
class _Frame:
    """The characters around a plot."""

    left: str
    tick_left: str
    bottom: str
    tick_bottom: str
    corner: str


_UNDERLINED = box.SIMPLE_HEAD
_ASCII_UNDERLINED = box.Box(str(box.SIMPLE_HEAD).replace("─", "-"), ascii=True)
_FRAME = _Frame("│", "┤", "─", "┬", "└")
_ASCII_FRAME = _Frame("|", "+", "-", "+", "+")


def console_for(stream: TextIO) -> Console:
    """A console on `stream` that writes no escape codes where it is no terminal or NO_COLOR is set."""
    return Console(file=stream, highlight=False, color_system=None if os.environ.get("NO_COLOR") else "auto")


def print_fits(fits: Sequence[Fit], console: Console) -> None:
    """Every fit in turn, after a table of all where there are several."""
    if len(fits) > 1:
        _print_table(tables.comparison(fits), console)
    for fit in fits:
        print_fit(fit, console)


def print_fit(fit: Fit, console: Console) -> None:
    """The answer in words, the plot, the tables, the doubts and the warnings of one fit."""
    console.print()
    console.print(_text(fit.curve.name, console, style="bold"))
    console.print(_text(words.headline(fit), console, style=_headline_style(fit)))
    if (fared := words.later_points(fit)) is not None:
        console.print(_text(fared, console))
    if (fit.curve.compute > 0.0).any():
        print_plot(fit, console)
    print_tables((tables.parameters(fit), tables.forecasts(fit), tables.laws(fit)), console)
    print_decisions(fit, console)
    console.print()
    for doubt in fit.doubts:
        _print_item(doubt, console, mark="!")
    for note in (*fit.warnings, *fit.curve.notes):
        _print_item(note, console)


def print_decisions(fit: Fit, console: Console) -> None:
    """What follows for the targets and the budget that were asked about, and what shorter runs would have predicted."""
    for sentences, table in (
        (decision_words.sentences(fit), decision_words.targets(fit)),
        (decision_words.backtest_sentences(fit), decision_words.prefixes(fit)),
    ):
        if sentences:
            console.print()
        for sentence in sentences:
            console.print(_text(sentence, console))
        print_tables((table,), console)
    if fit.backtest is not None and len(fit.backtest.prefixes) > 1:
        _print_ceilings(fit, fit.backtest, console)


def print_comparison(compared: Comparison, console: Console) -> None:
    """Recipes side by side: the verdicts in words, the ranking and the pairs."""
    console.print()
    console.print(_text(comparison_words.title(compared), console, style="bold"))
    for sentence in comparison_words.sentences(compared):
        console.print(_text(sentence, console))
    print_tables((comparison_words.ranking(compared), comparison_words.pairs(compared)), console)
    console.print()
    for note in comparison_words.notes(compared):
        _print_item(note, console)


def print_run(report: RunReport, console: Console) -> None:
    """What a run comes to: sentences, alarms, counts, what the steps measured, and costs; its curves are printed apart."""
    summary = report.summary
    console.print()
    console.print(_text(f"Run {summary.name}", console, style="bold"))
    for sentence in report.sentences():
        console.print(_text(sentence, console))
    measured = run_tables.measures(summary, is_ascii=console.options.ascii_only)
    shown = (run_tables.alarms(summary), run_tables.counts(summary), measured, ledger_table(summary.ledger), costs_of(summary.ledger))
    print_tables(shown, console)
    console.print()
    console.print(_text("Keep or re-prefill?", console, style="bold"))
    for sentence in summary.kv.sentences():
        console.print(_text(sentence, console))
    print_tables(summary.kv.tables(), console)


def _headline_style(fit: Fit) -> str:
    """Green only where the answer stands undoubted."""
    return "bold yellow" if fit.doubts and fit.status in (Status.OK, Status.SATURATED) else _STATUS_STYLES.get(fit.status, "bold yellow")


def print_listing(listing: Listing, console: Console, *, name: str) -> None:
    """The columns of the log called `name`, and what would be chosen from it."""
    rows = tuple(
        (facts.name, str(facts.numbers), *("" if end is None else words.number(end) for end in (facts.first, facts.last)), facts.text)
        for facts in listing.columns
    )
    caption = f"{name}: {counted(listing.rows, 'row')}"
    _print_table(tables.Table(caption, ("column", "numbers", "first", "last", "text"), rows), console)
    console.print()
    for note in listing.notes:
        _print_item(note, console)


def print_plot(fit: Fit, console: Console, *, num_rows: int = 16) -> None:
    """Reward against compute on a logarithmic axis, `num_rows` high without axes and legend.

    Points at zero compute have no place on that axis and are counted below it.
    """
    is_ascii = console.options.ascii_only
    width = min(console.width, _WIDEST_PLOT)
    console.print()
    console.print(_text(fit.curve.metric, console, style="dim"))
    for line in plot_lines(fit, width=width, num_rows=num_rows, is_ascii=is_ascii):
        console.print(line, no_wrap=True, crop=True)
    console.print(_text(f"{fit.curve.axis.label}, logarithmic", console, style="dim"), justify="center", width=width)
    console.print(_legend(fit, is_ascii=is_ascii))
    if num_hidden := int((fit.curve.compute <= 0.0).sum()):
        _print_item(f"{num_hidden} at zero compute not shown on the logarithmic axis", console)


def plot_lines(fit: Fit, *, width: int, num_rows: int, is_ascii: bool) -> list[Text]:
    """The plot with its axes, `width` characters wide: `num_rows` rows of it, the axis and the axis' labels."""
    picture = picture_of(fit)
    sides = (picture.compute_range, picture.reward_range)
    return _framed(partial(_draw, fit, picture), fit.curve, *sides, width=width, num_rows=num_rows, is_ascii=is_ascii)


def _framed(
    draw: Callable[[Canvas], None],
    curve: Curve,
    compute_range: tuple[float, float],
    reward_range: tuple[float, float],
    *,
    width: int,
    num_rows: int,
    is_ascii: bool,
) -> list[Text]:
    """What `draw` puts on a canvas, with an axis of rewards at its left and a logarithmic one below."""
    ticks = nice_ticks(*reward_range, most=max(num_rows // 2, 2))
    labels = [words.reward(tick, curve) for tick in ticks]
    margin = max(map(len, labels), default=0)
    canvas = Canvas(num_columns=max(width - margin - 1, _NARROWEST_PLOT), num_rows=num_rows, is_ascii=is_ascii)
    draw(canvas)
    frame = _ASCII_FRAME if is_ascii else _FRAME
    label_of_row = {canvas.row(float(_share(tick, reward_range))): label for tick, label in zip(ticks, labels, strict=True)}
    lines = [
        Text(f"{label_of_row[row]:>{margin}}{frame.tick_left}" if row in label_of_row else " " * margin + frame.left).append_text(cells)
        for row, cells in enumerate(canvas.rows())
    ]
    axis, axis_labels = _compute_axis(compute_range, canvas, frame)
    return [*lines, Text(" " * margin + axis), Text(" " * (margin + 1) + axis_labels)]


def _draw(fit: Fit, picture: Picture, canvas: Canvas) -> None:
    """Lines first, points above them, those that the fit has used on top."""
    band = fit.band(np.geomspace(*picture.compute_range, canvas.num_dot_columns))
    if band is not None:
        for edge in (band.low, band.high) if has_intervals(fit) else ():
            canvas.line(_share(edge, picture.reward_range), _BAND)
        if picture.ceiling is not None and picture.ceiling.value is not None:
            canvas.line(_share(np.full_like(band.mean, picture.ceiling.value), picture.reward_range), _CEILING)
        canvas.line(_share(band.mean, picture.reward_range), _LAW)
    for points, marker in ((picture.earlier, _EARLIER), (picture.later, _LATER), (picture.fitted, _FITTED)):
        positive = points.window(low=picture.compute_range[0])
        across = _share(np.log(positive.compute), np.log(picture.compute_range))
        canvas.points(across, _share(positive.reward, picture.reward_range), marker)


def _print_ceilings(fit: Fit, tested: Backtest, console: Console, *, num_rows: int = 10) -> None:
    """The ceiling against the share of the compute that its points had used, with its interval."""
    known = [(prefix.share, prefix.A) for prefix in tested.prefixes if prefix.A is not None]
    if len(known) < _FEWEST_CEILINGS:
        return
    is_ascii, width = console.options.ascii_only, min(console.width, _WIDEST_PLOT)
    shares = np.array([share for share, _ in known])
    low, high = (np.array([edge for _, A in known for edge in [getattr(A, side)]]) for side in ("low", "high"))
    bottom, top = float(low.min()), float(high.max())
    sides = ((float(shares[0]), 1.0), (bottom, top) if bottom < top else fit.curve.bounds)

    def draw(canvas: Canvas) -> None:
        at = np.geomspace(shares[0], shares[-1], round(canvas.num_dot_columns * float(_share(np.log(shares[-1]), np.log(sides[0])))))
        for edge in (low, high):
            canvas.line(_share(np.interp(at, shares, edge), sides[1]), _BAND)
        for marker, is_bounded in ((_EARLIER, False), (_FITTED, True)):
            shown = [(share, A.value if A.value is not None else A.low) for share, A in known if A.identified is is_bounded]
            if shown:
                x, y = np.array(shown).T
                canvas.points(_share(np.log(x), np.log(sides[0])), _share(y, sides[1]), marker)

    console.print()
    console.print(_text("ceiling A", console, style="dim"))
    for line in _framed(draw, fit.curve, *sides, width=width, num_rows=num_rows, is_ascii=is_ascii):
        console.print(line, no_wrap=True, crop=True)
    console.print(_text("share of the compute, logarithmic", console, style="dim"), justify="center", width=width)
    bounded, least = _FITTED.letter(is_ascii=is_ascii), _EARLIER.letter(is_ascii=is_ascii)
    console.print(
        _text(f"{bounded} ceiling   {least} not bounded: its least value   {words.level(fit)} interval between the lines", console)
    )


def _compute_axis(compute_range: tuple[float, float], canvas: Canvas, frame: _Frame) -> tuple[str, str]:
    """The line under the plot with its ticks, and the labels below it, of which none touches another."""
    axis, labels = [frame.bottom] * canvas.num_columns, [" "] * canvas.num_columns
    free_from = 0
    for tick in log_ticks(*compute_range):
        column = canvas.column(float(_share(np.log(tick), np.log(compute_range))))
        label = format_number(tick)
        start = min(max(column - len(label) // 2, 0), canvas.num_columns - len(label))
        axis[column] = frame.tick_bottom
        if start >= free_from:
            labels[start : start + len(label)] = label
            free_from = start + len(label) + 2
    return frame.corner + "".join(axis), "".join(labels).rstrip()


def _legend(fit: Fit, *, is_ascii: bool) -> Columns:
    """What each sign in the plot means, as far as it occurs."""
    picture = picture_of(fit, num_points=2)
    entries = [
        (marker.letter(is_ascii=is_ascii), marker.style, meaning)
        for points, marker, meaning in (
            (picture.fitted, _FITTED, "fitted"),
            (picture.later, _LATER, "after the window"),
            (picture.earlier.window(low=picture.compute_range[0]), _EARLIER, "before the window"),
        )
        if len(points)
    ]
    if fit.best is not None:
        entries.append(("***" if is_ascii else "⠒⠒⠒", _LAW.style, tables.law_words(fit.best.law)))
        if has_intervals(fit):
            entries.append((". ." if is_ascii else "⠂⠐⠂", _BAND.style, f"{words.level(fit)} band"))
        if picture.ceiling is not None and picture.ceiling.value is not None:
            entries.append(("- -" if is_ascii else "⠒ ⠒", _CEILING.style, f"ceiling {words.reward(picture.ceiling.value, fit.curve)}"))
    return Columns((Text.assemble((sign, style), f" {meaning}", overflow="fold") for sign, style, meaning in entries), padding=(0, 3))


def print_tables(shown: Sequence[tables.Table], console: Console) -> None:
    """Tables one below the other; those without rows are left out."""
    for table in shown:
        if table.rows:
            _print_table(table, console)


def _print_table(table: tables.Table, console: Console) -> None:
    """A table below its caption; where its words do not fit side by side, one block of head and value lines for each row."""
    console.print()
    console.print(_text(table.caption, console, style="bold"))
    widths = column_widths(table, console.width)
    if widths is None:
        _print_blocks(table, console)
        return
    underlined = _ASCII_UNDERLINED if console.options.ascii_only else _UNDERLINED
    shown = RichTable(box=underlined, padding=(0, _GAP - 1, 0, 0), pad_edge=False, show_edge=False)
    for column, (head, width) in enumerate(zip(table.header, widths, strict=True)):
        justify: JustifyMethod = "right" if table.is_numeric(column) else "left"
        shown.add_column(_text(head, console), overflow="fold", width=width, justify=justify)
    for row in table.rows:
        shown.add_row(*(_text(cell, console) for cell in row))
    console.print(shown)


def column_widths(table: tables.Table, width: int) -> list[int] | None:
    """Characters for each column, narrowed between words until the table fits into `width`; None where words would be broken."""
    columns = list(zip(table.header, *table.rows, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    least = [min(_LONGEST_WORD, max(cell_len(word) for cell in column for word in cell.split() or [""])) for column in columns]
    while sum(widths) + _GAP * (len(widths) - 1) > width:
        slack, widest = max((widths[column] - least[column], column) for column in range(len(columns)))
        if slack <= 0:
            return None
        widths[widest] -= 1
    return widths


def _print_blocks(table: tables.Table, console: Console) -> None:
    for row in table.rows:
        console.print(_text(row[0], console))
        block = RichTable.grid(padding=(0, 2, 0, 0))
        for _ in range(2):
            block.add_column(overflow="fold")
        for head, cell in zip(table.header[1:], row[1:], strict=True):
            if cell:
                block.add_row(_text(f"  {head}", console, style="dim"), _text(cell, console))
        console.print(block)


def _print_item(sentence: str, console: Console, *, mark: str = "-") -> None:
    """A sentence that hangs on a mark and wraps beside it."""
    grid = RichTable.grid(padding=(0, 1))
    grid.add_row(mark, _text(sentence, console))
    console.print(grid)


def _text(text: str, console: Console, *, style: str = "") -> Text:
    """Foreign text without terminal codes or markup, in characters that the console can write."""
    return Text(printable(text).encode(console.encoding, "replace").decode(console.encoding), style=style, overflow="fold")


def _share(value: ArrayLike, value_range: ArrayLike) -> FloatArray:
    """Where `value` lies in the range, 0 at its lower end and 1 at its upper."""
    low, high = np.asarray(value_range, dtype=np.float64)
    share: FloatArray = (np.asarray(value, dtype=np.float64) - low) / (high - low)
    return share
