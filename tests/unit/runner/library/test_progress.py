"""Blocking work in a thread: its progress, its result and its end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from runner.library.progress import Abandoned, Advance, Progress, run_with_progress


async def ignore(progress: Progress) -> None:
    """Nobody watches."""


async def test_the_result_is_given_and_the_last_report_has_all_bytes() -> None:
    reported: list[Progress] = []

    async def report(progress: Progress) -> None:
        reported.append(progress)

    def work(advance: Advance) -> str:
        for _ in range(10):
            advance(10)
        return "done"

    assert await run_with_progress(work, "reading", 100, report) == "done"
    assert reported[-1] == Progress("reading", 100, 100)


async def test_what_the_work_raises_is_raised() -> None:
    def work(advance: Advance) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await run_with_progress(work, "reading", 1, ignore)


async def test_more_bytes_than_expected_are_not_reported() -> None:
    reported: list[int] = []

    async def report(progress: Progress) -> None:
        reported.append(progress.completed or 0)

    await run_with_progress(lambda advance: advance(9), "reading", 5, report)
    assert max(reported) == 5


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
