"""Blocking work in a thread: its progress, its result and its end."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from runner.library.progress import Abandoned, Advance, run_with_progress


async def ignore(line: dict[str, Any]) -> None:
    """Nobody watches."""


async def test_the_result_is_given_and_the_last_line_tells_all_bytes() -> None:
    told: list[dict[str, Any]] = []

    async def tell(line: dict[str, Any]) -> None:
        told.append(line)

    def work(advance: Advance) -> str:
        for _ in range(10):
            advance(10)
        return "done"

    assert await run_with_progress(work, "reading", 100, tell) == "done"
    assert told[-1] == {"status": "reading", "completed": 100, "total": 100}


async def test_what_the_work_raises_is_raised() -> None:
    def work(advance: Advance) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await run_with_progress(work, "reading", 1, ignore)


async def test_more_bytes_than_expected_are_not_told() -> None:
    told: list[int] = []

    async def tell(line: dict[str, Any]) -> None:
        told.append(line["completed"])

    await run_with_progress(lambda advance: advance(9), "reading", 5, tell)
    assert max(told) == 5


async def test_cancelled_work_ends_at_its_next_step_and_is_waited_for() -> None:
    loop, started = asyncio.get_running_loop(), asyncio.Event()
    go_on, ended = threading.Event(), threading.Event()

    def work(advance: Advance) -> None:
        loop.call_soon_threadsafe(started.set)
        go_on.wait(30)
        try:
            advance(1)
        except Abandoned:
            ended.set()
            raise

    task = asyncio.create_task(run_with_progress(work, "reading", 1, ignore))
    await started.wait()
    task.cancel()
    loop.call_soon(go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
