"""Work that comes to its end although nobody waits for it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


async def whole(work: Awaitable[T]) -> T:
    """What work gives; a caller that is cancelled, however often, waits for its end first. Raises
    what it raises."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    finally:
        await wait_ended(task)


async def wait_ended(task: asyncio.Future[Any]) -> None:
    """Wait for a task to its end, also when the waiter is cancelled meanwhile; what it raised is
    not raised here."""
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if not task.cancelled():
        task.exception()
    if cancelled:
        raise asyncio.CancelledError
