"""Text of somebody else's on its way to a terminal or a page."""

from __future__ import annotations


def printable(text: str, *, instead: str = "?") -> str:
    """`text` without terminal codes, line breaks or characters that reverse the reading order: `instead` stands for each."""
    return "".join(character if character.isprintable() else instead for character in text)
