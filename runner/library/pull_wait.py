"""Waiting for a pull that others may wait for too, with a word at every step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from registry.names import Name
from registry.pull import PullState
from registry.transfer.shared_task import SharedTask
from runner.errors import ShuttingDown

TICK_S = 0.06  # as often as Ollama


async def wait_for_pull(job: SharedTask[PullState], tell: Callable[[], Awaitable[None]]) -> Name:
    """Wait for the pull, with tell at every tick and once after its end. The name of what came.
    Raises what ended it, and ShuttingDown."""
    while True:
        ended = job.task.done()
        await tell()
        if ended:
            break
        await asyncio.wait({job.task}, timeout=TICK_S)
    if job.task.cancelled():
        raise ShuttingDown("the pull was stopped; what has arrived is kept")
    job.task.result()
    assert job.state.name is not None
    return job.state.name
