"""Completions to read: each with its reward, what became of it, and the tokens that were not the policy's."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from scalerl.core.text import printable
from scalerl.core.units import counted
from scalerl.runs.rollouts import Fate, Rollout

_NAME_WIDTH = len("gold answer")
_STYLES = {True: "bold green", False: "bold red", None: "bold yellow"}
"""By whether it passed; None where grading failed."""


def print_rollouts(shown: Sequence[tuple[Rollout, Fate]], console: Console, *, phrase: str) -> None:
    """Each completion below a line that says what it is; foreign text steers no terminal.

    Args:
        shown: completions, each with what became of its group.
        console: where to print.
        phrase: what the recipe inserts into a completion that it interrupts.
    """
    line = "-" if console.options.ascii_only else "─"
    for rollout, fate in shown:
        console.print(Rule(_text(heading(rollout, fate), console), align="left", style="dim", characters=line))
        console.print(Text.assemble((verdict(rollout), _STYLES[rollout.passed]), _text(measures(rollout), console)))
        for name, text in (("prompt", rollout.prompt), ("completion", rollout.text), ("gold answer", rollout.answer)):
            grid = Table.grid(padding=(0, 1, 0, 0))
            grid.add_column(width=_NAME_WIDTH, style="dim")
            grid.add_column(overflow="fold")
            grid.add_row(name, _text(text, console))
            console.print(grid)
        if (sentence := insertion(rollout, phrase=phrase)) is not None:
            console.print(_text(sentence, console), style="yellow")


def heading(rollout: Rollout, fate: Fate) -> str:
    """Which completion it is, and what became of its group."""
    step = fate.became if fate.step is None else f"step {fate.step}, {fate.became}"
    return f"{rollout.prompt_id}, epoch {rollout.epoch}, completion {rollout.index}, group {rollout.group}: {step}"


def verdict(rollout: Rollout) -> str:
    """The grade in a word or two."""
    if rollout.passed is None:
        return "not graded"
    outcome = "" if rollout.outcome in (None, "graded") else f" ({str(rollout.outcome).replace('_', ' ')})"
    return f"{'passed' if rollout.passed else 'failed'}{outcome}"


def measures(rollout: Rollout) -> str:
    """Value, parts, length and versions of a completion."""
    value = "" if rollout.value is None else f", value {rollout.value:g}"
    parts = "".join(f", {name} {part:g}" for name, part in rollout.parts.items())
    versions = (
        f"version {rollout.versions[0]}" if len(rollout.versions) == 1 else f"versions {rollout.versions[0]} to {rollout.versions[-1]}"
    )
    end = "" if rollout.finished else ", cut off at its budget"
    return f"{value}{parts}, {counted(len(rollout.token_ids), 'token')}, {versions}{end}"


def insertion(rollout: Rollout, *, phrase: str) -> str | None:
    """Where tokens were inserted, as a sentence; None where none were."""
    masked = [position for position, trains in enumerate(rollout.trainable) if not trains]
    if not masked:
        return None
    return f"Interrupted after {counted(masked[0], 'token')}: {counted(len(masked), 'token')} inserted and not trained on, '{phrase}'."


def _text(text: str, console: Console) -> Text:
    """Foreign text with its own line breaks, without terminal codes, in characters that the console can write."""
    lines = "\n".join(printable(line) for line in text.splitlines())
    return Text(lines.encode(console.encoding, "replace").decode(console.encoding), overflow="fold")
