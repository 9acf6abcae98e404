"""Large requests take turns on the loop, and others need none."""

from __future__ import annotations

import asyncio

from runner.turns import mark_large, take_turn


async def test_of_many_large_requests_one_works_in_each_pass_of_the_loop() -> None:
    passes, worked = 0, list[int]()

    async def count() -> None:
        nonlocal passes
        while len(worked) < 20:
            passes += 1
            await asyncio.sleep(0)

    async def work() -> None:
        mark_large()
        for _ in range(2):
            await take_turn()
            worked.append(passes)

    await asyncio.wait_for(asyncio.gather(count(), *(work() for _ in range(10))), 60)
    assert len(set(worked)) == len(worked) == 20


async def test_a_small_request_does_not_wait() -> None:
    waiting = take_turn()
    try:
        waiting.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")


async def test_a_request_that_is_cancelled_while_it_waits_holds_nobody_up() -> None:
    async def work() -> None:
        mark_large()
        await take_turn()

    gone, last = asyncio.create_task(work()), asyncio.create_task(work())
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait_for(last, 60)
