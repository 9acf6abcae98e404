"""Work that ends though its caller is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from runner.cancellation import whole


async def test_the_result_or_the_error_comes_back() -> None:
    async def fail() -> None:
        raise KeyError("a")

    assert await whole(asyncio.sleep(0, "done")) == "done"
    with pytest.raises(KeyError):
        await whole(fail())


async def test_a_caller_that_is_cancelled_twice_waits_for_the_end() -> None:
    begun, go_on, ended = asyncio.Event(), asyncio.Event(), False

    async def work() -> None:
        nonlocal ended
        begun.set()
        await go_on.wait()
        ended = True

    caller = asyncio.create_task(whole(work()))
    await begun.wait()
    for _ in range(2):
        caller.cancel()
        await asyncio.wait({caller}, timeout=0)
        assert not caller.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended
