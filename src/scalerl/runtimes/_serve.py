"""What the process of a role does, from its first line to its last.

The file that builds the role is named, not imported: the orchestrator's process, which names it, stays without torch.
"""

from __future__ import annotations

import importlib
import signal
import socket
import traceback
from dataclasses import dataclass
from typing import Any

from scalerl.accounting.meter import Meter
from scalerl.core.clock import SystemClock
from scalerl.core.errors import ScalerlError
from scalerl.records.cost import Activity, Cost
from scalerl.runtimes import Setup
from scalerl.runtimes._channel import RESUME, Channel, Command, News, Reply
from scalerl.runtimes._weights import MemoryFile


@dataclass(frozen=True, slots=True)
class Birth:
    """What a role is given when its process starts."""

    name: str
    """`generator` or `trainer`."""
    builder: str
    """Dotted path of the module that builds the role: `scalerl.runtimes._build`, or a stand-in of a test."""
    setup: Setup
    threads: int
    file: MemoryFile | None
    """Where weights change hands; without one they travel as messages."""
    spawned_s: float
    """When the process was asked for, on the machine's clock: starting it is booked as loading."""


def main(birth: Birth, end: socket.socket) -> None:
    """Serve until the pipe closes; whatever goes wrong is told to the orchestrator as one sentence."""
    # Ctrl-C goes to the whole group of processes: the orchestrator alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    clock = SystemClock()
    channel = Channel(end, clock=clock)
    meter = Meter(f"{birth.name}:0", clock=clock)
    start = Cost(meter.device, Activity.LOAD, max(0.0, clock.now_s() - birth.spawned_s), detail="process")
    serve = {"generator": _serve_generator, "trainer": _serve_trainer}[birth.name]
    try:
        serve(birth, channel, meter, start)
    except ScalerlError as error:
        channel.fail(error)
    except Exception as error:  # The edge of the process: a fault of the role becomes a sentence, its traceback goes to stderr.
        traceback.print_exc()
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        channel.fail(ScalerlError(f"the {birth.name} failed ({reason})", remedy=RESUME))


def _serve_trainer(birth: Birth, channel: Channel, meter: Meter, start: Cost) -> None:
    with meter.doing(Activity.LOAD):
        build = _builder(birth)
        folder = build.make_base(birth.setup, meter=meter, between=channel.between)
        channel.send(News((folder, (start, *meter.collect()))))
        role = build.trainer_role(birth.setup, folder, file=birth.file, meter=meter, between=channel.between)
    channel.send(News(meter.collect()))
    while True:
        with meter.doing(Activity.IDLE, "no batch"):
            channel.wait()
        with meter.doing(Activity.TRAIN, "messages"):
            _answer(channel, role)


def _serve_generator(birth: Birth, channel: Channel, meter: Meter, start: Cost) -> None:
    with meter.doing(Activity.LOAD):
        build = _builder(birth)
        with meter.doing(Activity.IDLE, "no base"):
            (folder,) = channel.receive().arguments
        role = build.generator_role(birth.setup, folder, file=birth.file, meter=meter, between=channel.between)
    channel.send(News((start, *meter.collect())))
    while True:
        with meter.doing(Activity.GENERATE, "messages"):
            while channel.has_command():
                _answer(channel, role)
            if (sampled := role.sampled()) is not None:
                channel.send(News(sampled))
        if role.waits_for:
            with meter.doing(Activity.IDLE, role.waits_for):
                channel.wait()
        else:
            role.step()
            channel.between()


def _builder(birth: Birth) -> Any:
    build = importlib.import_module(birth.builder)
    build.use_threads(birth.threads)
    return build


def _answer(channel: Channel, role: Any) -> None:
    command: Command = channel.receive()
    value = getattr(role, command.method)(*command.arguments)
    if command.call is not None:
        channel.send(Reply(command.call, value))
