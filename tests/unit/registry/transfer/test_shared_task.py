from __future__ import annotations

import asyncio

import pytest

from registry.transfer.shared_task import SharedTask, SharedTasks


class Work:
    """A task that waits for its gate and counts its starts."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.starts = 0
        self.cancelled = 0

    async def run(self, state: list[str]) -> None:
        self.starts += 1
        state.append("begun")
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        state.append("done")


def join(sharing: SharedTasks[list[str]], work: Work, key: str = "k") -> SharedTask[list[str]]:
    return sharing.join(key, list, work.run)


async def test_all_who_want_the_same_watch_one_task() -> None:
    sharing, work = SharedTasks[list[str]](), Work()
    jobs = [join(sharing, work) for _ in range(50)]
    other = join(sharing, work, "other")
    work.gate.set()
    await asyncio.wait({jobs[0].task, other.task})
    assert work.starts == 2
    assert {id(job.state) for job in jobs} == {id(jobs[0].state)}
    assert jobs[0].state == ["begun", "done"]


async def test_the_task_ends_with_the_last_who_leaves_and_not_before() -> None:
    sharing, work = SharedTasks[list[str]](), Work()
    jobs = [join(sharing, work) for _ in range(3)]
    await asyncio.sleep(0)
    for job in jobs[:2]:
        await sharing.leave(job)
    assert work.cancelled == 0
    await sharing.leave(jobs[2])
    assert (work.cancelled, jobs[2].task.cancelled()) == (1, True)


async def test_nobody_joins_a_task_that_is_ending() -> None:
    sharing, work = SharedTasks[list[str]](), Work()
    first = join(sharing, work)
    await asyncio.sleep(0)
    leaving = asyncio.ensure_future(sharing.leave(first))
    await asyncio.sleep(0)
    second = join(sharing, work)
    work.gate.set()
    await asyncio.gather(leaving, second.task)
    assert second.state == ["begun", "done"]


async def test_a_failure_is_seen_by_all_and_the_next_starts_anew() -> None:
    sharing: SharedTasks[list[str]] = SharedTasks()
    starts = 0

    async def fail(state: list[str]) -> None:
        nonlocal starts
        starts += 1
        raise ValueError("no")

    jobs = [sharing.join("k", list, fail) for _ in range(2)]
    await asyncio.wait({jobs[0].task})
    for job in jobs:
        with pytest.raises(ValueError, match="no"):
            job.task.result()
    again = sharing.join("k", list, fail)
    await asyncio.wait({again.task})
    assert starts == 2


async def test_closing_ends_everything() -> None:
    sharing, work = SharedTasks[list[str]](), Work()
    job = join(sharing, work)
    await asyncio.sleep(0)
    await sharing.close()
    assert job.task.cancelled()
    await sharing.close()
