"""Lines and points in character cells: eight braille dots to a cell, or one character where braille cannot be printed.

Written here because plotext, the library for it, imports in .16 s, keeps one global figure, changed its whole interface
between 5 and 6, and has no frame in plain ASCII.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.text import Text

from scalerl.records.curve import FloatArray

_BRAILLE_BLANK = 0x2800
_BRAILLE_DOTS = np.array([[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]])
"""Bit of the dot at [column, row from the top] in a braille character."""

_ROUNDING = 1e-9
"""Of a step between ticks: .3 / .1 is a little less than 3."""


@dataclass(frozen=True, slots=True)
class Stroke:
    """How a line looks: the colours of `style`, drawn for `on` dots of every `period`, `letter` in plain ASCII."""

    style: str
    letter: str
    on: int = 1
    period: int = 1


@dataclass(frozen=True, slots=True)
class Marker:
    """How a point looks: its colours and its character, in Unicode and in plain ASCII."""

    style: str
    unicode_letter: str
    ascii_letter: str

    def letter(self, *, is_ascii: bool) -> str:
        """The character for a console of that kind."""
        return self.ascii_letter if is_ascii else self.unicode_letter


class Canvas:
    """Cells that lines and points are drawn on in order; what is drawn later lies above.

    Positions are fractions of the width from the left and of the height from the bottom; what falls outside is not drawn.
    """

    def __init__(self, *, num_columns: int, num_rows: int, is_ascii: bool) -> None:
        self.num_columns, self.num_rows = num_columns, num_rows
        self._is_ascii = is_ascii
        self._dots_across, self._dots_down = (1, 1) if is_ascii else (2, 4)
        self._bits = np.zeros((num_columns, num_rows), dtype=np.int64)
        self._letters = np.full((num_columns, num_rows), "", dtype="U1")
        self._styles = np.full((num_columns, num_rows), "", dtype="U32")

    @property
    def num_dot_columns(self) -> int:
        """Dots side by side: the resolution at which lines are sampled."""
        return self.num_columns * self._dots_across

    def column(self, across: float) -> int:
        """The column of cells that holds the position."""
        return min(int(across * self.num_columns), self.num_columns - 1)

    def row(self, height: float) -> int:
        """The row of cells, counted from the top, that holds the position."""
        return self.num_rows - 1 - min(int(height * self.num_rows), self.num_rows - 1)

    def line(self, heights: FloatArray, stroke: Stroke) -> None:
        """A line through one height for each dot column, joined upwards and downwards unless it is broken into dashes."""
        num_dot_rows = self.num_rows * self._dots_down
        levels = np.rint(np.clip(heights, -1.0, 2.0) * (num_dot_rows - 1)).astype(int)
        for column, level in enumerate(levels):
            if column % stroke.period >= stroke.on:
                continue
            last = levels[column - 1] if column and stroke.period == 1 else level
            for step in range(min(level, last + 1), max(level, last - 1) + 1):
                if 0 <= step < num_dot_rows:
                    self._dot(column, num_dot_rows - 1 - step, stroke)

    def points(self, across: FloatArray, heights: FloatArray, marker: Marker) -> None:
        """A character at each point."""
        for x, y in zip(across, heights, strict=True):
            if 0.0 <= x <= 1.0 and 0.0 <= y <= 1.0:
                cell = (self.column(x), self.row(y))
                self._letters[cell], self._styles[cell] = marker.letter(is_ascii=self._is_ascii), marker.style

    def rows(self) -> list[Text]:
        """The rows from the top, each as wide as the canvas."""
        return [
            Text.assemble(*((self._character(column, row), str(self._styles[column, row])) for column in range(self.num_columns)))
            for row in range(self.num_rows)
        ]

    def _dot(self, column: int, row: int, stroke: Stroke) -> None:
        cell = (column // self._dots_across, row // self._dots_down)
        self._bits[cell] |= _BRAILLE_DOTS[column % self._dots_across, row % self._dots_down]
        self._letters[cell], self._styles[cell] = stroke.letter if self._is_ascii else "", stroke.style

    def _character(self, column: int, row: int) -> str:
        letter, bits = str(self._letters[column, row]), int(self._bits[column, row])
        return letter or (chr(_BRAILLE_BLANK + bits) if bits else " ")


def nice_ticks(low: float, high: float, *, most: int) -> list[float]:
    """At most `most` round numbers, 1, 2 or 5 times a power of ten apart, inside [low, high]."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((factor * power for factor in (1.0, 2.0, 5.0) if factor * power >= rough), 10.0 * power)
    first, last = math.ceil(low / step - _ROUNDING), math.floor(high / step + _ROUNDING)
    return [min(max(step * index, low), high) for index in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten inside [low, high], or the powers alone where those are many."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors: Sequence[float] = (1.0, 2.0, 5.0) if len(exponents) <= 6 else (1.0,)
    return [factor * 10.0**exponent for exponent in exponents for factor in factors if low <= factor * 10.0**exponent <= high]
