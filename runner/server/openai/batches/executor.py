"""Runs batches: one task for each, with a bounded number of lines at a time for all of them.

Owns the tasks. The journal owns states and finished lines, so that the next daemon continues where
this one ended, however it ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from runner.cancellation import whole
from runner.errors import QueueFull, ShuttingDown, StorageFailed
from runner.server.caller import Caller, set_caller
from runner.server.openai.batches import results
from runner.server.openai.batches.input_file import (
    InputCheck,
    InputFault,
    InputLine,
    check,
    read_lines,
)
from runner.server.openai.batches.journal import Batch, BatchJournal, Ending
from runner.server.openai.batches.results import LineResponse, result_of
from runner.server.openai.files.file_store import FileStore, new_file_id

log = logging.getLogger("hearth.batches")

Call = Callable[[str, dict[str, Any]], Awaitable[LineResponse]]
MAX_TRIES = 2  # of a line whose failure may not be its own; three crashes block a model for all
MAX_WAIT_S = 60.0
MAX_OPEN = 64  # batches under way
MAX_OPEN_OF_KEY = 16


@dataclass(frozen=True, slots=True)
class Traffic:
    """How batches share the daemon. call: answers a line. parallel: lines at a time. clear: waits
    until no other load needs the memory of a model that batches keep busy. caller: the caller with
    that id, None when it may no longer send requests."""

    call: Call
    parallel: int
    clear: Callable[[], Awaitable[None]]
    caller: Callable[[str], Caller | None]


@dataclass(slots=True, eq=False)
class _Running:
    """A batch and its task. patience: ends the work on lines, by itself when time is over."""

    batch: Batch
    task: asyncio.Task[None] | None = None
    patience: asyncio.Timeout | None = None
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)


class BatchExecutor:
    """The batches of one daemon."""

    def __init__(self, files: FileStore, journal: BatchJournal, traffic: Traffic) -> None:
        self.files = files
        self.journal = journal
        self._traffic = traffic
        self._slots = asyncio.Semaphore(traffic.parallel)
        self._doubtful = asyncio.Lock()
        self._running: dict[str, _Running] = {}

    async def resume(self) -> None:
        """Tidy the files and go on with what an earlier daemon left. Raises StorageFailed."""
        await asyncio.to_thread(self.files.sweep)
        for batch in await asyncio.to_thread(self.journal.open_batches):
            self._start(batch)

    async def create(self, batch: Batch) -> None:
        """Begin a batch. Raises QueueFull, StorageFailed."""
        if len(self._running) >= MAX_OPEN:
            raise QueueFull(
                f"{MAX_OPEN} batches are already in progress; cancel one or wait",
                retry_after_s=round(MAX_WAIT_S),
            )
        if batch.owner and len(self._of(batch.owner)) >= MAX_OPEN_OF_KEY:
            raise QueueFull(
                f"{MAX_OPEN_OF_KEY} batches of this key are already in progress; cancel one or "
                "wait",
                retry_after_s=round(MAX_WAIT_S),
            )
        await asyncio.to_thread(self.journal.save, batch)
        self._start(batch)

    async def cancel(self, ident: str) -> bool:
        """Begin the end of a batch: lines in the making are dropped, finished ones stay. False
        when it has ended. Raises StorageFailed."""
        running = self._running.get(ident)
        if running is None:
            return False
        async with running.changing:
            batch = running.batch
            if not batch.is_open or batch.ending is not None:
                return False
            await self._save(running, _came_to(batch, "cancelling"))
        if running.patience is not None:
            running.patience.reschedule(asyncio.get_running_loop().time())
        return True

    async def cancel_of(self, owner: str) -> None:
        """Begin the end of all batches of a caller. Raises StorageFailed."""
        for ident in self._of(owner):
            await self.cancel(ident)

    async def close(self) -> None:
        """Stop; the next daemon continues unfinished batches."""
        tasks = [item.task for item in self._running.values() if item.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _of(self, owner: str) -> list[str]:
        return [ident for ident, item in self._running.items() if item.batch.owner == owner]

    def _start(self, batch: Batch) -> None:
        running = _Running(batch)
        self._running[batch.id] = running
        running.task = asyncio.create_task(self._run(running))

    async def _run(self, running: _Running) -> None:
        ident = running.batch.id
        try:
            while running.batch.is_open:
                try:
                    await self._carry_out(running)
                except* (StorageFailed, OSError) as group:
                    log.error("batch %s is waiting for disk space: %s", ident, group.exceptions[0])
                    await asyncio.sleep(MAX_WAIT_S)
            log.info("batch %s: %s", ident, running.batch.status)
        except Exception:
            log.exception("batch %s stopped; it resumes when the daemon restarts", ident)
        finally:
            del self._running[ident]

    async def _carry_out(self, running: _Running) -> None:
        """From whatever state the batch is in to its end."""
        if running.batch.times.get("in_progress_at") is None:
            await self._validate(running)
        if running.batch.is_open and running.batch.ending is None:
            await self._work(running)
        if running.batch.is_open:
            await self._finish(running)

    async def _validate(self, running: _Running) -> None:
        batch = running.batch
        path = self.files.path_of(batch.input_file_id)
        try:
            found = await asyncio.to_thread(check, path, batch.endpoint)
        except OSError as error:
            message = f"the input file cannot be read: {error.strerror}"
            found = InputCheck(faults=[InputFault("invalid_file", message)])
        async with running.changing:
            batch = replace(running.batch, total=found.total, model=found.model)
            if found.faults:
                errors = [fault.to_json() for fault in found.faults]
                batch = _came_to(replace(batch, total=0, errors=errors), "failed")
            elif batch.status == "validating":
                batch = _came_to(batch, "in_progress")
            await self._save(running, batch)

    async def _work(self, running: _Running) -> None:
        """Answer the lines that are left, until all are done, time is over or it is cancelled. One
        whose owner may not ask any more is."""
        ending: Ending = "completed"
        caller = self._traffic.caller(running.batch.owner)
        if caller is None:
            await self.cancel(running.batch.id)
        else:
            set_caller(caller)
        if running.batch.is_cancelled:
            ending = "cancelled"
        else:
            left_s = await asyncio.to_thread(self.journal.left_s, running.batch)
            try:
                async with asyncio.timeout(left_s) as patience:
                    running.patience = patience
                    await self._answer_all(running.batch)
            except TimeoutError:
                ending = "cancelled" if running.batch.is_cancelled else "expired"
            finally:
                running.patience = None
        async with running.changing:
            batch = running.batch
            if not batch.is_cancelled:
                batch = _came_to(batch, "finalizing")
            batch = replace(batch, output_file_id=new_file_id(), error_file_id=new_file_id())
            await self._save(running, replace(batch, ending=ending))

    async def _answer_all(self, batch: Batch) -> None:
        done = await asyncio.to_thread(self.journal.done, batch.id)
        path = self.files.path_of(batch.input_file_id)
        async with asyncio.TaskGroup() as group:
            lines = _left(read_lines(path, batch.endpoint), done)
            while (line := await asyncio.to_thread(next, lines, None)) is not None:
                await self._traffic.clear()
                await self._slots.acquire()
                task = group.create_task(self._answer(batch, line))
                task.add_done_callback(lambda _: self._slots.release())

    async def _answer(self, batch: Batch, line: InputLine) -> None:
        answered = await self._ask(batch.endpoint, line.body)
        # What has begun to be noted is noted: the end of the batch must not overtake it.
        await whole(asyncio.to_thread(self.journal.add, batch.id, result_of(line, answered)))

    async def _ask(self, endpoint: str, body: dict[str, Any]) -> LineResponse:
        """The endpoint's answer; failures that may not be the line's own are tried again, one
        line at a time, so that of several that were hit by one crash only its cause fails."""
        tries = 1
        answered = await self._traffic.call(endpoint, body)
        while (counted := _may_try(answered, tries)) is not None:
            await asyncio.sleep(_wait_s(answered, tries))
            tries += counted
            async with self._doubtful:
                answered = await self._traffic.call(endpoint, body)
        return answered

    async def _finish(self, running: _Running) -> None:
        now = int(time.time())
        async with running.changing:
            running.batch = await asyncio.to_thread(
                results.finish, self.files, self.journal, running.batch, now
            )

    async def _save(self, running: _Running, batch: Batch) -> None:
        await asyncio.to_thread(self.journal.save, batch)
        running.batch = batch


def _came_to(batch: Batch, status: Any) -> Batch:
    return replace(batch, status=status, times={**batch.times, f"{status}_at": int(time.time())})


def _left(lines: Iterator[InputLine | InputFault], done: set[int]) -> Iterator[InputLine]:
    """The lines that are not done."""
    return (line for line in lines if isinstance(line, InputLine) and line.number not in done)


def _error(answered: LineResponse) -> dict[str, Any]:
    error = answered.body.get("error") if isinstance(answered.body, dict) else None
    return error if isinstance(error, dict) else {}


def _may_try(answered: LineResponse, tries: int) -> int | None:
    """Whether to try a line again: None for no, else how many tries that takes. None is taken
    where the failure says nothing of the line."""
    if answered.status < 500:
        return None
    error = _error(answered)
    if "retry_after_s" in error or error.get("code") == ShuttingDown.code:
        return 0
    return 1 if tries < MAX_TRIES else None


def _wait_s(answered: LineResponse, tries: int) -> float:
    """How long to wait before the line is tried again: as the answer says, or ever longer."""
    body = _error(answered).get("retry_after_s")
    return min(MAX_WAIT_S, float(body) if body else 2.0**tries)
