from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from runner.library.batches import batches


async def test_all_items_come_in_order_and_from_a_thread() -> None:
    threads = set()

    def items() -> Iterator[int]:
        for number in range(1000):
            threads.add(threading.get_ident())
            yield number

    found = [number async for batch in batches(items()) for number in batch]
    assert found == list(range(1000))
    assert threading.get_ident() not in threads


async def test_an_error_of_the_iterator_reaches_the_reader() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        async for _ in batches(items()):
            pass


async def test_a_cancelled_reader_waits_for_the_step_under_way() -> None:
    entered, leave, left = threading.Event(), threading.Event(), []

    def items() -> Iterator[int]:
        entered.set()
        leave.wait(10)
        left.append(True)
        yield 1

    async def read() -> None:
        async for _ in batches(items()):
            pass

    task = asyncio.create_task(read())
    await asyncio.to_thread(entered.wait, 10)
    task.cancel()
    leave.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left == [True]
