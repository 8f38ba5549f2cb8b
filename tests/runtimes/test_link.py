"""The two ends of a pipe, with the role's end in the hands of the test: no process, no waiting."""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from scalerl.core.clock import ManualClock
from scalerl.core.errors import DataError, ScalerlError
from scalerl.runtimes._channel import Beat, Channel, Command, Message, News, Reply, framed
from scalerl.runtimes._link import ProcessLink


class DeadProcess:
    """What is left of a process that was killed."""

    name = "trainer"
    exitcode = -9

    def join(self, timeout: float | None = None) -> None: ...


@asynccontextmanager
async def linked(*, heartbeat_timeout_s: float = 100.0) -> AsyncIterator[tuple[ProcessLink, Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    streams = await asyncio.open_unix_connection(sock=ours)
    doom: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    process: Any = DeadProcess()
    link = ProcessLink(process, streams=streams, doom=doom, heartbeat_timeout_s=heartbeat_timeout_s, clock=ManualClock())
    with theirs:
        yield link, Channel(theirs, clock=ManualClock()), theirs
        link.close()


def test_answers_find_their_questions_whatever_their_order() -> None:
    async def story() -> None:
        async with linked() as (link, channel, _):
            asked = [asyncio.create_task(link.ask("double", number)) for number in (1, 2)]
            link.tell("rest")
            await asyncio.sleep(0)
            commands = [channel.receive() for _ in range(3)]
            assert [command.method for command in commands] == ["rest", "double", "double"]
            assert commands[0].call is None
            for command in reversed(commands[1:]):
                assert command.call is not None
                channel.send(Reply(command.call, 2 * command.arguments[0]))
            assert await asyncio.gather(*asked) == [2, 4]

    asyncio.run(story())


def test_an_answer_that_nobody_waits_for_any_more_harms_nothing() -> None:
    async def story() -> None:
        async with linked() as (link, channel, _):
            asked = asyncio.create_task(link.ask("think"))
            await asyncio.sleep(0)
            asked.cancel()
            command = channel.receive()
            assert command.call is not None
            channel.send(Reply(command.call, "late"))
            channel.send(News("next"))
            assert await link.news() == "next"

    asyncio.run(story())


def test_news_is_not_lost_with_the_task_that_waited_for_it() -> None:
    async def story() -> None:
        async with linked() as (link, channel, _):
            waiting = asyncio.create_task(link.news())
            await asyncio.sleep(0)
            channel.send(News(1))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await link.news() == 1

    asyncio.run(story())


def test_messages_larger_than_the_pipe_arrive_whole_both_ways() -> None:
    async def story() -> None:
        async with linked() as (link, _, end):
            content = bytes(range(256)) * 4_000
            link.tell("keep", content)
            end.setblocking(False)
            received = bytearray()
            while len(received) < len(framed(Command("keep", (content,)))):
                await asyncio.sleep(0)
                try:
                    received += end.recv(1 << 20)
                except BlockingIOError:
                    continue
            assert pickle.loads(received[8:]).arguments == (content,)
            news = asyncio.create_task(link.news())
            await asyncio.get_running_loop().sock_sendall(end, framed(News(content)))
            assert await news == content

    asyncio.run(story())


@pytest.mark.parametrize("last_words", [b"", framed(Beat())[:5]], ids=["silently", "while it speaks"])
def test_whoever_waits_for_a_role_that_is_killed_learns_of_it(last_words: bytes) -> None:
    async def story() -> None:
        async with linked() as (link, _, end):
            waiting = [asyncio.create_task(link.ask("train")), asyncio.create_task(link.news())]
            await asyncio.sleep(0)
            end.sendall(last_words)
            end.close()
            for task in [*waiting, asyncio.create_task(link.ask("save"))]:
                with pytest.raises(ScalerlError, match=r"the trainer died \(killed by SIGKILL\); go on from the last .* --resume"):
                    await task

    asyncio.run(story())


def test_a_role_says_why_it_fails_though_commands_wait_that_it_never_reads() -> None:
    async def story() -> None:
        async with linked() as (link, channel, _):
            asked = asyncio.create_task(link.ask("train"))
            link.tell("rest")
            await asyncio.sleep(0)
            failing = asyncio.get_running_loop().run_in_executor(None, channel.fail, DataError("no such base", where="model.path"))
            with pytest.raises(DataError, match=r"model\.path: no such base"):
                await asked
            link.close()
            with pytest.raises(SystemExit):
                await failing

    asyncio.run(story())


def test_a_silent_role_ends_the_run_and_a_sign_of_life_prevents_it() -> None:
    async def story() -> None:
        async with linked(heartbeat_timeout_s=0.2) as (link, channel, _):
            asked = asyncio.create_task(link.ask("train"))
            for _ in range(8):
                done, _ = await asyncio.wait({asked}, timeout=0.05)
                assert not done
                channel.send(Beat())
            with pytest.raises(ScalerlError, match=r"runtime\.heartbeat_timeout_s: nothing was heard from the trainer for 0\.2 s"):
                await asked

    asyncio.run(story())


def test_a_role_beats_once_a_second_while_it_works_and_stops_when_nobody_listens() -> None:
    ours, theirs = socket.socketpair()
    clock = ManualClock()
    channel = Channel(theirs, clock=clock)
    for _ in range(25):
        clock.advance(0.1)
        channel.between()
    heard: list[Message] = []
    with ours:
        for _ in range(2):
            size = int.from_bytes(ours.recv(8), "little")
            heard.append(pickle.loads(ours.recv(size)))
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            ours.recv(1)
    assert heard == [Beat(), Beat()]
    with theirs:
        for method in (channel.between, channel.has_command, channel.receive, lambda: channel.send(Beat())):
            with pytest.raises(SystemExit):
                method()
