"""Rollouts: what the policy wrote, token by token, as Parquet files in `rollouts/` of a run directory.

    pandas.read_parquet("runs/mine/rollouts")        # one row per completion

Events say what became of a group and never hold tokens; these files hold tokens and never say what became of them, so no
crash can make the two disagree: the step of a group is looked up in the events. A killed run loses at most the part that
was being filled, and readers say how many groups of the events have no rollout.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from scalerl.accounting.fold import Fold
from scalerl.core.errors import UsageError
from scalerl.core.files import write_atomically
from scalerl.core.random import stream_key, uniform
from scalerl.records.events import GroupFinished, Resumed, RunEntry, StepFinished
from scalerl.records.rollout import Completion, Group
from scalerl.runs.directory import RunDirectory

ROLLOUTS_FOLDER = "rollouts"
"""Name of the folder in a run directory."""
_GROUPS_PER_PART, _TOKENS_PER_PART = 256, 2_000_000
"""A part is written when either is reached: what a crash can lose, and what a reader holds."""
_PART = re.compile(r"part-(\d+)-(\d+)\.parquet")


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion as its file holds it."""

    group: int
    attempt: int
    """How often the run had been resumed when this was sampled."""
    prompt_id: str
    task: str
    epoch: int
    index: int
    """Which of the group's completions this is."""
    prompt: str
    answer: str
    """The gold answer."""
    text: str
    token_ids: list[int]
    log_probs: list[float]
    """In nats, each under the version that sampled the token; 0 for an inserted one."""
    trainable: list[bool]
    """False for inserted tokens."""
    versions: list[int]
    """The weights that sampled, in order ..."""
    version_tokens: list[int]
    """... and how many tokens each of them."""
    finished: bool
    value: float | None
    passed: bool | None
    outcome: str | None
    parts: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """The rollout in plain data."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class RolloutWriter:
    """Collects graded groups and writes them in parts; flush it at every checkpoint, close it when the run ends."""

    def __init__(self, run_folder: Path, *, seed: int, attempt: int, share: float = 1.0) -> None:
        """A writer into `rollouts/` of the run.

        Args:
            run_folder: the run directory.
            seed: of the run: which groups are kept is drawn from it, the prompt and the epoch alone.
            attempt: how often the run has been resumed so far: the `resumed` events in its log, this start's included.
            share: of the groups to keep, 0 to 1.

        Raises:
            UsageError: pyarrow is not installed.
        """
        self._parquet = _parquet()
        self._folder = run_folder / ROLLOUTS_FOLDER
        self._folder.mkdir(exist_ok=True)
        self._seed, self._attempt, self._share = seed, attempt, share
        self._next_part = 1 + max((part for written, part, _ in _parts(self._folder) if written == attempt), default=-1)
        self._groups: list[Group] = []
        self._num_tokens = 0

    def add(self, group: Group) -> None:
        """Take a graded group, if its draw keeps it.

        Raises:
            ScalerlError: a part is full and cannot be written.
        """
        if not self._keeps(group):
            return
        self._groups.append(group)
        self._num_tokens += sum(completion.token_ids.size for completion in group.completions)
        if len(self._groups) >= _GROUPS_PER_PART or self._num_tokens >= _TOKENS_PER_PART:
            self.flush()

    def flush(self) -> None:
        """Write what was collected as a part of its own, whole or not at all.

        Raises:
            ScalerlError: the file cannot be written; nothing that was collected is lost.
        """
        if not self._groups:
            return
        rows = [_row(group, completion, self._attempt) for group in self._groups for completion in group.completions]
        path = self._folder / f"part-{self._attempt:04d}-{self._next_part:06d}.parquet"
        write_atomically(path, self._parquet.encoded(rows))
        self._next_part += 1
        self._groups, self._num_tokens = [], 0

    close = flush

    def _keeps(self, group: Group) -> bool:
        return float(uniform(stream_key(self._seed, "rollouts", group.prompt.id, group.epoch), 0, 0)) < self._share


class Fate(msgspec.Struct, frozen=True):
    """What became of a group."""

    attempt: int
    step: int | None = None
    """The step that dealt with it; None while it waits."""
    seq: int = 0
    """The event of that step."""
    became: str = "waiting"
    """`trained`, `filtered by NAME`, `dropped`, `not graded`, or `waiting`."""


class FatesFold(Fold):
    """The groups of the lineage that goes on: after a resume, those that its checkpoint had not settled count no more."""

    fates: dict[int, Fate] = {}
    num_resumes: int = 0

    def update(self, entry: RunEntry) -> None:
        """Take in one entry, in order."""
        event = entry.event
        if isinstance(event, GroupFinished):
            self.fates[event.group] = Fate(self.num_resumes)
        elif isinstance(event, StepFinished):
            self._settle(entry.seq, event)
        elif isinstance(event, Resumed):
            self.num_resumes += 1
            self.fates = {group: fate for group, fate in self.fates.items() if fate.step is not None and fate.seq <= event.from_seq}

    def _settle(self, seq: int, event: StepFinished) -> None:
        kinds = {
            "trained": event.trained,
            "dropped": event.dropped,
            "not graded": event.failed,
            **{f"filtered by {name}": groups for name, groups in event.filtered.items()},
        }
        for became, groups in kinds.items():
            for group in groups:
                if group in self.fates:
                    self.fates[group] = Fate(self.fates[group].attempt, event.step, seq, became)


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The rollouts of a run, read when they are asked for."""

    folder: Path
    fates: dict[int, Fate]
    """Every group of the lineage that goes on, whether or not its completions are kept."""

    @classmethod
    def of(cls, run: RunDirectory) -> Rollouts:
        """The rollouts of `run`.

        Raises:
            CorruptLogError: the event log is damaged before its end.
        """
        fold = FatesFold()
        for entry in run.events():
            fold.update(entry)
        return cls(run.path / ROLLOUTS_FOLDER, fold.fates)

    def select(self, *, step: int | None = None, prompt: str | None = None, passed: bool | None = None) -> Iterator[tuple[Rollout, Fate]]:
        """Each completion with what became of its group, in the order in which groups finished; None asks for all.

        Of a group that a resume made again, the attempt that counts is told by the events.

        Raises:
            UsageError: pyarrow is not installed.
            CorruptLogError: a file is damaged.
        """
        parquet = _parquet()
        equal = {name: value for name, value in (("prompt_id", prompt), ("passed", passed)) if value is not None}
        for attempt, _, path in _parts(self.folder):
            groups = [group for group, fate in self.fates.items() if fate.attempt == attempt and step in (None, fate.step)]
            for row in parquet.decoded(path, groups=groups, equal=equal):
                yield Rollout(**{**row, "parts": dict(row["parts"])}), self.fates[row["group"]]

    def kept(self) -> set[int]:
        """The groups whose completions are kept; the others were not drawn, or a crash took them.

        Raises:
            UsageError: pyarrow is not installed.
            CorruptLogError: a file is damaged.
        """
        parquet = _parquet()
        found = {(attempt, group) for attempt, _, path in _parts(self.folder) for group in parquet.groups_in(path)}
        return {group for group, fate in self.fates.items() if (fate.attempt, group) in found}


def _row(group: Group, completion: Completion, attempt: int) -> dict[str, Any]:
    score = completion.score
    return {
        "group": group.id,
        "attempt": attempt,
        "prompt_id": group.prompt.id,
        "task": group.prompt.task,
        "epoch": group.epoch,
        "index": completion.index,
        "prompt": group.prompt.text,
        "answer": group.prompt.answer,
        "text": completion.text,
        "token_ids": completion.token_ids,
        "log_probs": completion.log_probs,
        "trainable": completion.trainable,
        "versions": [version for version, _ in completion.version_runs],
        "version_tokens": [num_tokens for _, num_tokens in completion.version_runs],
        "finished": completion.finished,
        "value": None if score is None else score.value,
        "passed": None if score is None else score.passed,
        "outcome": None if score is None else str(score.outcome),
        "parts": [] if score is None else list(score.parts.items()),
    }


def _parts(folder: Path) -> list[tuple[int, int, Path]]:
    """The files as (attempt, number, path), in that order."""
    if not folder.is_dir():
        return []
    found = [(match, path) for path in folder.iterdir() if (match := _PART.fullmatch(path.name))]
    return sorted((int(match[1]), int(match[2]), path) for match, path in found)


def _parquet() -> ModuleType:
    """The sibling that imports pyarrow, which the base install does without."""
    try:
        from scalerl.runs import _parquet as parquet  # noqa: PLC0415
    except ModuleNotFoundError:
        raise UsageError(
            "rollouts need the package pyarrow, which is not installed", remedy="install it with: pip install 'scalerl[train]'"
        ) from None
    return parquet
