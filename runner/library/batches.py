"""The steps of a blocking iterator in a thread, so that the event loop is free."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from typing import TypeVar

from runner.cancellation import whole

ItemT = TypeVar("ItemT")
_BATCH_S = 0.1


async def batches(items: Iterator[ItemT]) -> AsyncGenerator[list[ItemT], None]:
    """What an iterator that blocks gives, as much at a time as comes in a tenth of a second.

    When the reader is cancelled, the batch under way ends first.
    """
    while True:
        batch, ended = await whole(asyncio.to_thread(_advance, items))
        if batch:
            yield batch
        if ended:
            return


def _advance(items: Iterator[ItemT]) -> tuple[list[ItemT], bool]:
    batch, until_s = [], time.monotonic() + _BATCH_S
    for item in items:
        batch.append(item)
        if time.monotonic() >= until_s:
            return batch, False
    return batch, True
