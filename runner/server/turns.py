"""Long pieces of work on the event loop, one for each of its passes.

A large request is parsed, checked, converted and sent on in steps of up to some 20 ms, and before
each it takes a turn: everybody else's work goes between, however many large requests there are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import ContextVar
from typing import Final

LARGE_BYTES: Final = 64 * 1024  # of a body; a smaller one takes about 1 ms

_large: ContextVar[bool] = ContextVar("large", default=False)
_waiting: deque[asyncio.Future[None]] = deque()


def mark_large() -> None:
    """The request of this task is a large one."""
    _large.set(True)


async def take_turn() -> None:
    """Wait for the turn of a large request; others need none."""
    if not _large.get():
        return
    loop = asyncio.get_running_loop()
    turn: asyncio.Future[None] = loop.create_future()
    _waiting.append(turn)
    if len(_waiting) == 1:
        loop.call_soon(_next, loop)
    await turn


def _next(loop: asyncio.AbstractEventLoop) -> None:
    """Let the first one go; the next one in the pass after."""
    turn = _waiting[0]
    if not turn.done():  # its client may have gone
        turn.set_result(None)
    _waiting.popleft()
    if _waiting:
        loop.call_soon(_next, loop)
