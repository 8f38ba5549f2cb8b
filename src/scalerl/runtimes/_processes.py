"""A process for the generator and one for the trainer; the orchestrator stays in this one.

Both start at once, and the generator imports what it needs while the trainer makes the base.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from multiprocessing.process import BaseProcess

from scalerl.core.clock import Clock, SystemClock
from scalerl.runtimes import Roles, Setup
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
    doom: Doom = asyncio.get_running_loop().create_future()
    with ExitStack() as at_end:
        processes: list[BaseProcess] = []
        at_end.callback(end, processes)
        file = MemoryFile.create()
        if file is not None:
            at_end.callback(file.close)

        async def start(name: str) -> ProcessLink:
            spawned_s = SystemClock().now_s()
            birth = Birth(name, builder=builder, setup=setup, threads=settings.threads, file=file, spawned_s=spawned_s)
            process, pipe = spawned(birth)
            processes.append(process)
            streams = await asyncio.open_unix_connection(sock=pipe)
            link = ProcessLink(process, streams=streams, doom=doom, heartbeat_timeout_s=settings.heartbeat_timeout_s)
            at_end.callback(link.close)
            return link

        trainer, generator = await start("trainer"), await start("generator")
        base, base_costs = await trainer.news()
        generator.tell("load", base)
        trainer_costs, generator_costs = await trainer.news(), await generator.news()
        transit = Transit()
        yield Roles(
            generator=GeneratorProxy(generator, transit=transit),
            grader=TaskGrader(setup.task.grader(), clock=clock),
            trainer=TrainerProxy(trainer, transit=transit),
            base=base,
            costs=(*base_costs, *trainer_costs, *generator_costs),
        )
