"""What the process of vLLM does, from its first line to its last: start it, then answer one call after the other.

    python -m scalerl.engines._vllm_serve DESCRIPTOR PARENT          started by _vllm_process

It ends when its pipe closes, and with the process that started it, whatever kills that.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from scalerl.engines._vllm_calls import Failure
from scalerl.engines._vllm_start import Start

_PR_SET_PDEATHSIG = 1
"""Of Linux's prctl(2): the signal that this process gets when its parent dies."""


def main(descriptor: int, parent: int) -> None:
    """Serve until the pipe closes; what goes wrong is told through it as one sentence, its traceback goes to stderr."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    pipe = Connection(descriptor)
    try:
        _serve(pipe)
    except (EOFError, ConnectionError):
        return
    except Exception as error:  # The edge of the process: a fault of vLLM becomes a sentence.
        traceback.print_exc()
        pipe.send(Failure(" ".join(f"{type(error).__name__}: {error}".split())))


def _serve(pipe: Connection) -> None:
    start: Start = pipe.recv()
    # Here, so that whatever is wrong with an installation is told through the pipe.
    from scalerl.engines._vllm_server import Server

    with TemporaryDirectory(prefix="scalerl-vllm-") as folder:
        Path(folder, "config.json").write_text(start.config)
        server = Server(start, folder=folder)
    pipe.send(None)
    while True:
        method, arguments = pipe.recv()
        pipe.send(getattr(server, method)(*arguments))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
