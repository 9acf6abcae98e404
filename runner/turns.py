"""Long pieces of work beside the event loop's own, so that nobody waits for them.

A large request is parsed, checked and sent on in steps of up to some 20 ms, and before each it
takes a turn, one for each pass of the loop: everybody else's work goes between, however many large
requests there are. What consists of short steps by itself goes into a thread, one for all of them:
several would take the interpreter from the loop more often than it gets it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Final, ParamSpec, TypeVar

LARGE_BYTES: Final = 64 * 1024  # of a body; a smaller one takes about 1 ms

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
_STEP_S: Final = 0.005

_thread = ThreadPoolExecutor(1, "large-requests")
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


async def in_steps(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What work returns: for a large request in the thread, whose steps must be short."""
    if not _large.get():
        return work(*args, **kwargs)
    call = partial(copy_context().run, work, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_thread, call)


async def one_by_one(work: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """What work makes of each item, with everybody else's work between every few."""
    made = list[T]()
    until_s = time.monotonic() + _STEP_S
    for item in items:
        made.append(work(item))
        if time.monotonic() > until_s:
            await asyncio.sleep(0)
            until_s = time.monotonic() + _STEP_S
    return made


def _next(loop: asyncio.AbstractEventLoop) -> None:
    """Let the first one go; the next one in the pass after."""
    turn = _waiting[0]
    if not turn.done():  # its client may have gone
        turn.set_result(None)
    _waiting.popleft()
    if _waiting:
        loop.call_soon(_next, loop)
