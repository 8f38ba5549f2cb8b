"""One process: who waits is woken by what it waits for, and nobody keeps the others from their turn."""

from __future__ import annotations

import asyncio

from scalerl.runtimes._inline import InlineLink
from tests.runtimes.fakes import fake_generator, request


def test_who_waits_for_groups_is_woken_and_lets_others_work_between_decode_steps() -> None:
    async def story() -> None:
        role, engine = fake_generator()
        link = InlineLink(role)
        waiting = asyncio.create_task(link.news())
        await asyncio.sleep(0)
        link.tell("submit", [request(0, num_tokens=5)])
        await asyncio.sleep(0)
        assert engine.num_steps == 0, "there is no room yet"
        link.tell("allow", 1)
        steps_seen = set()
        while not waiting.done():
            await asyncio.sleep(0)
            steps_seen.add(engine.num_steps)
        assert steps_seen >= {1, 2, 3, 4, 5}
        assert [group.id for group in (await waiting).groups] == [0]

    asyncio.run(story())
