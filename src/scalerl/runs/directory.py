"""The run directory: everything that a run leaves behind.

runs/NAME/
    recipe.toml      the resolved recipe
    manifest.json    hash, versions, machine, seed
    events.jsonl     the log that metrics, ledger and curve are folded from
    rollouts/        token ids and log-probs
    checkpoints/     step-NNNNNN/, each a model folder with the loop's state beside it
    report.html
"""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from scalerl.core.clock import Clock
from scalerl.core.errors import DataError, OccupiedError, ScalerlError, UsageError
from scalerl.core.events import LogReader
from scalerl.core.files import write_atomically
from scalerl.core.log_writer import LogWriter
from scalerl.recipes import Recipe, load_resolved
from scalerl.records.events import EVENTS_FILE, Event
from scalerl.runs.manifest import Manifest


@dataclass(frozen=True)
class RunDirectory:
    """A run's folder; `create` makes a new one and never overwrites, `open` takes an existing one."""

    path: Path

    @classmethod
    def create(cls, path: Path, recipe: Recipe, *, clock: Clock) -> RunDirectory:
        """A new run directory with its recipe and manifest.

        Raises:
            OccupiedError: something is there already; an empty folder is taken.
            ScalerlError: the folder cannot be made.
        """
        # Half a run directory, left by a kill, would be in use for ever.
        draft = cls(path.parent / f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise _occupied(path)
            shutil.rmtree(draft.path, ignore_errors=True)
            draft.path.mkdir()
            write_atomically(draft.recipe_path, recipe.to_toml())
            write_atomically(draft.manifest_path, Manifest.of(recipe, clock=clock).to_json())
            draft.path.rename(path)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and path.exists():
                raise _occupied(path) from None
            raise ScalerlError(f"the folder cannot be made ({error.strerror})", where=str(path), remedy="give another --out") from None
        finally:
            shutil.rmtree(draft.path, ignore_errors=True)
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """The run directory at `path`.

        Raises:
            UsageError: it is none.
        """
        run = cls(path)
        if not run.manifest_path.is_file():
            raise UsageError("this is no run directory: it has no manifest.json", where=str(path), remedy="give the folder of a run")
        return run

    @property
    def recipe_path(self) -> Path:
        """The resolved recipe."""
        return self.path / "recipe.toml"

    @property
    def manifest_path(self) -> Path:
        """What the run was made with."""
        return self.path / "manifest.json"

    @property
    def events_path(self) -> Path:
        """The event log."""
        return self.path / EVENTS_FILE

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe that the run was created with.

        Raises:
            RecipeError: the file was changed into something that is no recipe.
        """
        return load_resolved(self.recipe_path)

    @cached_property
    def manifest(self) -> Manifest:
        """What the run was made with.

        Raises:
            DataError: the file is damaged.
        """
        try:
            return msgspec.json.decode(self.manifest_path.read_bytes(), type=Manifest)
        except (OSError, msgspec.DecodeError) as error:
            raise DataError(
                f"the manifest cannot be read ({error})", where=str(self.manifest_path), remedy="restore it from a copy"
            ) from None

    def writer(self, *, clock: Clock) -> LogWriter[Event]:
        """The one writer of the run's events; opening it cuts a torn last line."""
        return LogWriter(self.events_path, Event, clock=clock)

    def events(self, *, start: int = 0) -> LogReader[Event]:
        """The run's events from number `start` on."""
        return LogReader(self.events_path, Event, start=start)


def _occupied(path: Path) -> OccupiedError:
    is_run = RunDirectory(path).manifest_path.is_file()
    otherwise = "--resume to go on with it" if is_run else "move away what lies there, which is no run"
    return OccupiedError("the folder is in use", where=str(path), remedy=f"give another --out, or {otherwise}")
