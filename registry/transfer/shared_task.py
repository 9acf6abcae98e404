"""One task for all clients that want the same: it runs once, all of them watch it, and it is
cancelled when the last one leaves.

Knows nothing of what the task does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

StateT = TypeVar("StateT")


@dataclass(slots=True)
class SharedTask(Generic[StateT]):
    """A running task and what it shows of itself."""

    state: StateT
    task: asyncio.Task[Any]
    waiters: int = 0


@dataclass(slots=True)
class SharedTasks(Generic[StateT]):
    """The running tasks by what they are for."""

    _running: dict[str, SharedTask[StateT]] = field(default_factory=dict)
    _ending: set[asyncio.Task[Any]] = field(default_factory=set)

    def join(
        self, key: str, state: Callable[[], StateT], start: Callable[[StateT], Awaitable[Any]]
    ) -> SharedTask[StateT]:
        """The task for key, started when there is none. Call leave for each join."""
        shared = self._running.get(key)
        if shared is None or shared.task.done():
            fresh = state()
            shared = SharedTask(fresh, asyncio.ensure_future(_run(start, fresh)))
            self._running[key] = shared
            shared.task.add_done_callback(self._end)
        shared.waiters += 1
        return shared

    async def leave(self, shared: SharedTask[StateT]) -> None:
        """One waiter less; the last one cancels the task and waits until it has ended."""
        shared.waiters -= 1
        if shared.waiters == 0 and not shared.task.done():
            self._drop(shared.task)
            self._ending.add(shared.task)
            shared.task.cancel()
            await asyncio.wait({shared.task})

    def cancel_all(self) -> None:
        """Cancel every task; those who wait see its end."""
        for shared in list(self._running.values()):
            shared.task.cancel()

    async def close(self) -> None:
        """Cancel every task and wait until all have ended."""
        self.cancel_all()
        tasks = {shared.task for shared in self._running.values()} | self._ending
        if tasks:
            await asyncio.wait(tasks)

    def _drop(self, task: asyncio.Task[Any]) -> None:
        """Let nobody join a task any more: it ends."""
        self._running = {k: s for k, s in self._running.items() if s.task is not task}

    def _end(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()
        self._drop(task)
        self._ending.discard(task)


async def _run(start: Callable[[StateT], Awaitable[Any]], state: StateT) -> Any:
    return await start(state)
