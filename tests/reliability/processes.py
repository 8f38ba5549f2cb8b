"""A run as a user starts it, in a process session of its own, watched from outside by what Linux tells in /proc."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.runs.small import SCALE

POLL_S = 0.02
ROOT = Path(__file__).parents[2]


class Life:
    """A process of `scalerl train`, and all that it starts."""

    def __init__(self, folder: Path, *overrides: str) -> None:
        """Start a run in `folder`, or go on with the one that is there; half a folder, with nothing of a run in it yet, is removed."""
        self._told = folder.with_suffix(".stderr")
        command = [sys.executable, "-m", "scalerl.cli.main", "train", "--out", str(folder)]
        settings = [part for setting in overrides for part in ("--set", setting)]
        if (folder / "manifest.json").exists():
            command += ["--resume"]
        else:
            shutil.rmtree(folder, ignore_errors=True)
            command += ["scalerl", "--scale", str(SCALE), *settings]
        with self._told.open("ab") as told:
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=told, cwd=ROOT, start_new_session=True)
        self.pid = self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def roles(self) -> dict[str, int]:
        """Process ids by role; the trainer is spawned first, and the latest generator last."""
        began = {pid: int(stat[19]) for pid in living(self.pid) if "spawn_main" in _command(pid) and (stat := _stat(pid)) is not None}
        spawned = sorted(began, key=lambda pid: (began[pid], pid))
        return {"orchestrator": self.pid, **dict(zip(["trainer", "generator"], [*spawned[:1], *spawned[1:][-1:]], strict=False))}

    def kill(self, whom: str) -> bool:
        """Kill -9 a role, or `all` processes of the run; whether there was anybody to kill."""
        victims = living(self.pid) if whom == "all" else [pid for role, pid in self.roles().items() if role == whom]
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(victims)

    def wait_for(self, condition: Callable[[], bool], *, timeout_s: float = 120.0) -> None:
        """Wait until the condition holds or the run has ended."""
        until(lambda: self.has_ended or condition(), timeout_s=timeout_s, complaint=self.told)

    def end(self, *, timeout_s: float = 600.0) -> int:
        """Wait for the end of the run, and see that no process outlives it; the exit code."""
        code = self._process.wait(timeout_s)
        check_gone(self.pid)
        return code

    def told(self) -> str:
        """The end of what was said on stderr."""
        return self._told.read_text(errors="replace")[-3000:]


def living(session: int) -> list[int]:
    """Every living process of a session, which is named after its first."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    stats = {pid: stat for pid in pids if (stat := _stat(pid)) is not None}
    return [pid for pid, stat in stats.items() if int(stat[3]) == session and stat[0] != "Z"]


def check_gone(session: int) -> None:
    """See that no process of a session outlives its first, but for the moment that it takes to go."""
    until(lambda: not living(session), timeout_s=60.0, complaint=lambda: f"left: {[_command(pid) for pid in living(session)]}")


def until(condition: Callable[[], bool], *, timeout_s: float, complaint: Callable[[], str]) -> None:
    """Look again and again until the condition holds."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, complaint()
        time.sleep(POLL_S)


def _stat(pid: int) -> list[str] | None:
    """State, parent, group, session and so on: the fields of proc(5) from the third one on; None if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
