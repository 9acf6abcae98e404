"""The threads for what blocks: which client has how many of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from runner.server.caller import Caller, set_caller
from runner.server.shared_threads import SharedThreads

WAIT_S = 60.0
A, B = Caller(share="a"), Caller(share="b")


@pytest.fixture
def threads() -> Iterator[SharedThreads]:
    with SharedThreads(max_threads=4, max_of_one=2) as shared:
        yield shared


async def begin(
    caller: Caller, threads: SharedThreads, blocked: int, until: threading.Event
) -> list[asyncio.Task[bool]]:
    """Have a client block so many threads; returns once no more of them begin."""
    asyncio.get_running_loop().set_default_executor(threads)
    begun = threading.Semaphore(0)

    def block() -> bool:
        begun.release()
        return until.wait(WAIT_S)

    async def one() -> bool:
        set_caller(caller)
        return await asyncio.to_thread(block)

    tasks = [asyncio.create_task(one()) for _ in range(blocked)]
    await asyncio.sleep(0)
    for _ in range(2):
        assert begun.acquire(timeout=WAIT_S)
    assert not begun.acquire(blocking=False)
    return tasks


async def test_a_client_that_blocks_all_it_may_stops_nobody_else(threads: SharedThreads) -> None:
    until = threading.Event()
    tasks = await begin(A, threads, 20, until)
    set_caller(B)
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "served"), WAIT_S) == "served"
    until.set()
    assert all(await asyncio.gather(*tasks))


async def test_what_waits_goes_on_in_its_order_also_after_a_fault(threads: SharedThreads) -> None:
    until = threading.Event()
    tasks = await begin(A, threads, 2, until)
    set_caller(A)
    seen = list[int]()

    def fail() -> None:
        raise ValueError("its own")

    failing = asyncio.create_task(asyncio.to_thread(fail))
    later = [asyncio.create_task(asyncio.to_thread(seen.append, number)) for number in range(5)]
    await asyncio.sleep(0)
    assert not seen
    until.set()
    await asyncio.gather(*later, *tasks)
    assert sorted(seen) == list(range(5))
    with pytest.raises(ValueError, match="its own"):
        await failing


async def test_what_is_cancelled_while_it_waits_is_not_done(threads: SharedThreads) -> None:
    until = threading.Event()
    tasks = await begin(A, threads, 2, until)
    set_caller(A)
    seen = list[str]()
    task = asyncio.create_task(asyncio.to_thread(seen.append, "cancelled"))
    await asyncio.sleep(0)
    task.cancel()
    until.set()
    await asyncio.gather(*tasks)
    await asyncio.to_thread(seen.append, "next")
    assert seen == ["next"]


def test_what_waits_at_the_end_is_cancelled() -> None:
    until = threading.Event()
    threads = SharedThreads(max_threads=1, max_of_one=1)
    first, second = threads.submit(until.wait, WAIT_S), threads.submit(until.wait, WAIT_S)
    threads.shutdown(wait=False)
    until.set()
    assert first.result(WAIT_S)
    threads.shutdown(wait=True)
    assert second.cancelled()
