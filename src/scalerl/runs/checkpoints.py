"""Checkpoints: folders that a run can go on from, each there as a whole or not at all.

checkpoints/step-000100/
    config.json, model.safetensors, tokenizer.json ...    what AutoModelForCausalLM and AutoTokenizer load
    optimizer and version                                  the trainer's
    loop.json                                              the loop's: step, settled prompts, pass counts, event number

A checkpoint is written into a hidden folder, synced and renamed. The event log is synced before the rename, so that no
checkpoint is ahead of its log.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from scalerl.core.errors import ScalerlError
from scalerl.core.files import sync, write_atomically
from scalerl.pipeline.orchestrator import LoopState
from scalerl.recipes.recipe import Checkpoints

CHECKPOINTS_FOLDER = "checkpoints"
LOOP_FILE = "loop.json"
_STEP = re.compile(r"step-(\d+)")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder that can be gone on from."""

    path: Path
    state: LoopState


class CheckpointStore:
    """The checkpoints of one run directory."""

    def __init__(self, run_folder: Path, settings: Checkpoints) -> None:
        self.folder = run_folder / CHECKPOINTS_FOLDER
        self._settings = settings
        self.before_commit: tuple[Callable[[], None], ...] = ()
        """Make everything durable that a checkpoint relies on: the event log."""

    def begin(self, step: int) -> Path:
        """An empty folder for the checkpoint of `step`; what a crash left half written is removed.

        Raises:
            ScalerlError: the disk is full or read-only.
        """
        try:
            self.folder.mkdir(exist_ok=True)
            self._sweep()
            self._draft(step).mkdir()
        except OSError as error:
            raise self._failed(error) from None
        return self._draft(step)

    def commit(self, step: int, state: bytes) -> None:
        """Add the loop's `state`, and make the folder of `begin` a checkpoint.

        Raises:
            ScalerlError: the disk is full or read-only; the checkpoints before are as they were.
        """
        draft, final = self._draft(step), self._final(step)
        write_atomically(draft / LOOP_FILE, state)
        for make_durable in self.before_commit:
            make_durable()
        try:
            sync(draft)
            if final.exists():
                # A resume from an older checkpoint has come here again.
                final.rename(draft.with_suffix(".replaced"))
            draft.rename(final)
            sync(self.folder)
            self._prune(step)
        except OSError as error:
            raise self._failed(error) from None

    def steps(self) -> list[int]:
        """The steps of the checkpoints that there are, in order."""
        return list(checkpoints_in(self.folder))

    def latest(self, *, next_seq: int) -> Checkpoint | None:
        """The latest checkpoint whose event is among the first `next_seq` of the log; None if there is none."""
        for step in reversed(self.steps()):
            try:
                state = msgspec.json.decode((self._final(step) / LOOP_FILE).read_bytes(), type=LoopState)
            except (OSError, msgspec.DecodeError):
                continue
            if state.seq < next_seq:
                return Checkpoint(self._final(step), state)
        return None

    def newest(self) -> Path | None:
        """The folder of the latest checkpoint; None if there is none."""
        return next(reversed(checkpoints_in(self.folder).values()), None)

    def _prune(self, newest: int) -> None:
        """Remove what the settings do not keep, and later ones than `newest`, which a resume from before them has passed over."""
        forever = self._settings.keep_every_steps
        steps = self.steps()
        lineage = [step for step in steps if step <= newest]
        for step in set(steps) - set(lineage[-self._settings.keep_last :]):
            if forever is None or step % forever or step > newest:
                # Hidden first: a kill while its files are removed one by one must not leave half a checkpoint.
                self._final(step).rename(self._draft(step))
        self._sweep()

    def _sweep(self) -> None:
        """Remove what is no checkpoint, or no longer one; what others hide in the folder is theirs."""
        for leftover in self.folder.glob(".step-*"):
            shutil.rmtree(leftover)

    def _final(self, step: int) -> Path:
        return self.folder / f"step-{step:06d}"

    def _draft(self, step: int) -> Path:
        return self.folder / f".step-{step:06d}"

    def _failed(self, error: OSError) -> ScalerlError:
        return ScalerlError(
            f"the checkpoint cannot be written ({error.strerror or error})",
            where=str(self.folder),
            remedy="free disk space, then resume the run",
        )


def checkpoints_in(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder `checkpoints/` by their step, in order; none where there is no such folder."""
    if not folder.is_dir():
        return {}
    return dict(sorted((int(match[1]), path) for path in folder.iterdir() if (match := _STEP.fullmatch(path.name))))
