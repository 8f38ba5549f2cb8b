"""Both roles in this process. They take turns, and whichever does not work is idle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from scalerl.accounting.meter import Meter
from scalerl.core.clock import Clock
from scalerl.records.cost import Activity
from scalerl.records.roles import Sampled
from scalerl.runtimes import Roles, Setup
from scalerl.runtimes._generator import GeneratorRole
from scalerl.runtimes._grader import TaskGrader
from scalerl.runtimes._proxies import GeneratorProxy, TrainerProxy, Transit
from scalerl.runtimes._trainer import TrainerRole
from scalerl.runtimes._weights import MemoryFile
from scalerl.runtimes.inline import Inline


class InlineLink:
    """A role that is called directly; it decodes while somebody waits for what it finishes."""

    def __init__(self, role: GeneratorRole | TrainerRole) -> None:
        self._role = role
        self._called = asyncio.Event()

    def tell(self, method: str, *arguments: Any) -> None:
        """Call a method of the role."""
        self._call(method, *arguments)

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the role and return what it returns."""
        return self._call(method, *arguments)

    async def news(self) -> Sampled:
        """The next finished groups; other tasks have their turn after each decode step."""
        assert isinstance(self._role, GeneratorRole)
        while (sampled := self._role.sampled()) is None:
            if self._role.waits_for:
                self._called.clear()
                await self._called.wait()
            else:
                self._role.step()
                await asyncio.sleep(0)
        return sampled

    def _call(self, method: str, *arguments: Any) -> Any:
        self._called.set()
        return getattr(self._role, method)(*arguments)


@asynccontextmanager
async def launched(settings: Inline, setup: Setup, *, clock: Clock) -> AsyncIterator[Roles]:
    """Build both roles here."""
    with ExitStack() as at_end:
        trainer_meter, generator_meter = Meter("trainer:0", clock=clock), Meter("generator:0", clock=clock)
        for meter in (trainer_meter, generator_meter):
            at_end.enter_context(meter.doing(Activity.IDLE, "takes turns"))
        file = MemoryFile.create()
        if file is not None:
            at_end.callback(file.close)
        with trainer_meter.doing(Activity.LOAD):
            # Here and not above, so that the seconds which this import takes are booked.
            from scalerl.runtimes import _build

            at_end.callback(_build.use_threads, _build.use_threads(settings.threads))
            base = _build.make_base(setup, meter=trainer_meter, between=_heed_cancellation)
            trainer = _build.trainer_role(setup, base, file=file, meter=trainer_meter, between=_heed_cancellation)
        with generator_meter.doing(Activity.LOAD):
            generator = _build.generator_role(setup, base, file=file, meter=generator_meter, between=_heed_cancellation)
        transit = Transit()
        yield Roles(
            generator=GeneratorProxy(InlineLink(generator), transit=transit),
            grader=TaskGrader(setup.task.grader(), clock=clock),
            trainer=TrainerProxy(InlineLink(trainer), transit=transit),
            base=base,
            costs=(*trainer_meter.collect(), *generator_meter.collect()),
        )


def _heed_cancellation() -> None:
    """Between pieces of work: end where whoever waits for this one was cancelled, as by Ctrl-C, which the loop cannot see meanwhile."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
