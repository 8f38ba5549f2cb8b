"""The loop's end of the process in which vLLM runs: its start, its calls, and its death.

A process of its own, so that vLLM's threads, signals and environment stay out of this one, that there are signs of life
while it starts, and that its death is an error here instead of the end of the generator.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import weakref
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import torch

from scalerl.core.errors import LostRoleError, ScalerlError
from scalerl.engines._vllm_calls import Failure
from scalerl.engines._vllm_start import Start

_STDERR = 2
_EXIT_S = 5.0
"""Patience with a process that has closed its pipe and is about to exit."""


class VllmProcess:
    """vLLM from its start on; the process ends with this object."""

    def __init__(self, start: Start) -> None:
        self._pipe, theirs = Pipe()
        command = [sys.executable, "-m", "scalerl.engines._vllm_serve", str(theirs.fileno()), str(os.getpid())]
        # What it prints is talk; and in a session of its own it hears no Ctrl-C.
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdout=_STDERR, env=_environment(), start_new_session=True)
        theirs.close()
        self.has_started = False
        """Whether it answers calls."""
        weakref.finalize(self, _end, self._process, self._pipe)
        self._pipe.send(start)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def starts(self, *, within_s: float) -> bool:
        """Wait for vLLM to start, but not longer than that; whether it has.

        Raises:
            ScalerlError: vLLM does not start with this model on this machine, and why.
            LostRoleError: the process died.
        """
        if self._pipe.poll(within_s):
            self._receive()
            self.has_started = True
        return self.has_started

    def call(self, method: str, *arguments: Any) -> Any:
        """What a method of `Server` returns.

        Raises:
            ScalerlError: vLLM failed at it, and why.
            LostRoleError: the process died.
        """
        try:
            self._pipe.send((method, arguments))
        except ConnectionError:
            raise self._lost() from None
        return self._receive()

    def _receive(self) -> Any:
        try:
            answer = self._pipe.recv()
        except (EOFError, ConnectionError):
            raise self._lost() from None
        if isinstance(answer, Failure):
            what = "failed" if self.has_started else "does not start"
            raise ScalerlError(f"vLLM {what} ({answer.reason})", where="engine", remedy="mend that, or choose 'embedded'")
        return answer

    def _lost(self) -> LostRoleError:
        try:
            code = self._process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            how = "it closed its pipe"
        else:
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return LostRoleError(f"vLLM died ({how})", where="engine", remedy="go on from the last checkpoint with --resume")


def _end(process: subprocess.Popen[bytes], pipe: Connection) -> None:
    pipe.close()
    process.kill()
    process.wait()


def _environment() -> dict[str, str]:
    """Ours, with what vLLM reads from nowhere else; what the user has set of its talk stays."""
    return {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "PYTHONWARNINGS": "ignore",
        **os.environ,
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
    }
