"""Large requests take turns on the loop, and others need none."""

from __future__ import annotations

import asyncio
import time

from runner.turns import mark_large, one_by_one, take_turn


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


async def test_work_that_is_done_one_by_one_lets_others_go_between() -> None:
    passes = 0

    async def count() -> None:
        nonlocal passes
        while True:
            passes += 1
            await asyncio.sleep(0)

    def work(_: int) -> int:
        until_s = time.thread_time() + 0.002
        while time.thread_time() < until_s:
            pass
        return passes

    counting = asyncio.create_task(count())
    seen = await one_by_one(work, range(30))
    counting.cancel()
    assert len(set(seen)) >= 5
