"""Blocking work in a thread, with progress told to the loop and an end when nobody waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from registry.progress import Progress
from runner.cancellation import wait_ended

Advance = Callable[[int], None]
ReportProgress = Callable[[Progress], Awaitable[None]]
ResultT = TypeVar("ResultT")

__all__ = ["Abandoned", "Advance", "Progress", "ReportProgress", "run_with_progress"]

_TICK_S = 0.1


class Abandoned(Exception):
    """Raised by advance in the thread when nobody waits for the work any more."""


async def run_with_progress(
    work: Callable[[Advance], ResultT], status: str, total_bytes: int, report: ReportProgress
) -> ResultT:
    """Do blocking work that calls advance with the bytes done; progress is reported now and then.
    When the caller is cancelled the work ends at its next step, which is waited for.

    Raises what the work raises.
    """
    done_bytes, reported_bytes, abandoned = 0, -1, threading.Event()

    def advance(count_bytes: int) -> None:
        nonlocal done_bytes
        if abandoned.is_set():
            raise Abandoned
        done_bytes += count_bytes

    task = asyncio.ensure_future(asyncio.to_thread(work, advance))
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_TICK_S)
            if done_bytes != reported_bytes:
                reported_bytes = done_bytes
                completed = min(done_bytes, total_bytes)
                await report(Progress(status, completed, total_bytes))
        return task.result()
    finally:
        abandoned.set()
        await wait_ended(task)
