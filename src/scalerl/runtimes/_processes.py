"""A process for the generator and one for the trainer; the orchestrator stays in this one.

Both start at once, and the generator imports what it needs while the trainer makes the base. A generator holds nothing that
could not be sampled again, so one that dies or falls silent is replaced; a trainer that does ends the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

from scalerl.core.clock import Clock, SystemClock
from scalerl.core.errors import LostRoleError, ScalerlError
from scalerl.records.cost import Activity, Cost
from scalerl.runtimes import Roles, Setup
from scalerl.runtimes._channel import RESUME
from scalerl.runtimes._grader import TaskGrader
from scalerl.runtimes._link import Doom, ProcessLink, end, spawned
from scalerl.runtimes._proxies import GeneratorProxy, TrainerProxy, Transit
from scalerl.runtimes._serve import Birth
from scalerl.runtimes._weights import MemoryFile
from scalerl.runtimes.processes import Processes


@asynccontextmanager
async def launched(settings: Processes, setup: Setup, *, clock: Clock, builder: str = "scalerl.runtimes._build") -> AsyncIterator[Roles]:
    """Start both processes; on leaving they are ended and waited for.

    Their own clock is the machine's, whatever `clock` measures grading with.

    Raises:
        ScalerlError: what a role could not do; or that one died or fell silent, with its name.
    """
    with ExitStack() as at_end:
        nursery = _Nursery(settings, setup, builder=builder, at_end=at_end)
        trainer = await nursery.trainer()
        generator = await nursery.generator()
        base, base_costs = await generator.while_alive(trainer.news())
        generator.tell("load", base)
        trainer_costs, generator_costs = await generator.while_alive(trainer.news()), await generator.news()
        transit = Transit()
        proxy = GeneratorProxy(generator, transit=transit)
        yield Roles(
            generator=proxy,
            grader=TaskGrader(setup.task.grader(), clock=clock),
            trainer=TrainerProxy(trainer, transit=transit),
            base=base,
            costs=(*base_costs, *trainer_costs, *generator_costs),
            restart=partial(nursery.replace, proxy),
        )


class _Nursery:
    """Starts processes, and sees that none outlives the run."""

    def __init__(self, settings: Processes, setup: Setup, *, builder: str, at_end: ExitStack) -> None:
        self._settings, self._setup, self._builder, self._at_end = settings, setup, builder, at_end
        self._clock = SystemClock()
        self._doom: Doom = asyncio.get_running_loop().create_future()
        self._processes: list[BaseProcess] = []
        self._num_replaced = 0
        self._costs: list[Cost] = []
        at_end.callback(end, self._processes)
        self._file = MemoryFile.create()
        if self._file is not None:
            at_end.callback(self._file.close)

    async def trainer(self) -> ProcessLink:
        """A trainer, whose failure ends the run."""
        return await self._start("trainer", doom=self._doom, loss=ScalerlError)

    async def generator(self) -> ProcessLink:
        """A generator, whose loss is told to those who wait for it."""
        doom: Doom = asyncio.get_running_loop().create_future()
        self._doom.add_done_callback(partial(_pass_on, to=doom))
        return await self._start("generator", doom=doom, loss=LostRoleError)

    async def replace(self, proxy: GeneratorProxy, loss: LostRoleError, *, folder: Path) -> tuple[Cost, ...]:
        """Put a generator that loads `folder` in the place of the one that is lost.

        Raises:
            ScalerlError: as many were replaced as may be.
            LostRoleError: the new one is lost as well.
        """
        lost = proxy.link
        assert isinstance(lost, ProcessLink)
        if self._num_replaced == self._settings.restarts:
            raise ScalerlError(f"{loss.what}, after {self._num_replaced} restarts", where="runtime.restarts", remedy=RESUME)
        self._num_replaced += 1
        lost.close()
        self._processes.remove(lost.process)
        end([lost.process])
        self._costs.append(Cost("generator:0", Activity.LOST, self._clock.now_s() - lost.told_s))
        proxy.link = generator = await self.generator()
        generator.tell("load", folder)
        costs = (*self._costs, *await generator.news())
        self._costs = []
        return costs

    async def _start(self, name: str, *, doom: Doom, loss: type[ScalerlError]) -> ProcessLink:
        spawned_s = self._clock.now_s()
        birth = Birth(name, builder=self._builder, setup=self._setup, threads=self._settings.threads, file=self._file, spawned_s=spawned_s)
        process, pipe = spawned(birth)
        self._processes.append(process)
        streams = await asyncio.open_unix_connection(sock=pipe)
        timeout_s = self._settings.heartbeat_timeout_s
        link = ProcessLink(process, streams=streams, doom=doom, heartbeat_timeout_s=timeout_s, clock=self._clock, loss=loss)
        self._at_end.callback(link.close)
        return link


def _pass_on(failed: Doom, *, to: Doom) -> None:
    error = failed.exception()
    if error is not None and not to.done():
        to.set_exception(error)
        to.exception()  # Known from now on, even if nobody waits for this one.
