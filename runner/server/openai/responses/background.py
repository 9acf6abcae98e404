"""Responses that are made without a client waiting: one task each, ended with the daemon.

Owns the tasks. What became of one is in the file of responses; one that a daemon did not live to
finish counts as failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from runner.server.body_budget import BodyMemory, hold_stored
from runner.server.caller import current_caller
from runner.server.errors import failure_of
from runner.server.openai.answers import ResponseObject
from runner.server.openai.responses.builder import ResponseBuilder
from runner.server.openai.responses.events import EventLog
from runner.server.openai.responses.response_store import ResponseStore, StoredResponse

Make = Callable[[ResponseBuilder, EventLog], Coroutine[Any, Any, None]]
_UNFINISHED = ("queued", "in_progress")


@dataclass(frozen=True, slots=True)
class _Running:
    """making ends with the response; what comes of it is stored afterwards, also when making is
    cancelled."""

    owner: str
    builder: ResponseBuilder
    log: EventLog
    making: asyncio.Task[None]


class BackgroundResponses:
    """The responses in the making."""

    def __init__(self, file: ResponseStore) -> None:
        self.file = file
        self._running: dict[str, _Running] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(
        self,
        ident: str,
        make: Make,
        builder: ResponseBuilder,
        stored: Callable[[ResponseObject], StoredResponse],
        memory: BodyMemory,
    ) -> EventLog:
        """Make a response with builder, and log its events. stored: what to keep of it. memory:
        what it holds until then."""
        log = EventLog()
        log.add(builder.queue())
        making = asyncio.create_task(make(builder, log))
        running = _Running(current_caller().id, builder, log, making)
        self._running[ident] = running
        task = asyncio.create_task(self._finish(ident, running, stored))
        task.add_done_callback(lambda _: memory.release())
        self._tasks[ident] = task
        return log

    async def find(self, ident: str, owner: str | None = None) -> StoredResponse | None:
        """The response in its current state: a running one with its output so far, an abandoned one
        as failed. None: there is none, or none of that owner. Raises HttpError 503 where there is
        no memory for it, StorageFailed."""
        hold_stored(await asyncio.to_thread(self.file.size_bytes, ident, owner))
        for _ in range(2):  # it may have been finished and stored while the file was read
            stored = await asyncio.to_thread(self.file.find, ident, owner)
            running = self._running.get(ident)
            if stored is None or stored.response["status"] not in _UNFINISHED:
                return stored
            if running is not None:
                return replace(stored, response=running.builder.response())
        assert stored is not None
        error = {
            "code": "server_error",
            "message": "the daemon stopped before the response was complete",
        }
        return replace(stored, response={**stored.response, "status": "failed", "error": error})

    def log(self, ident: str) -> EventLog | None:
        """The events of a response in the making; None when it is not one."""
        running = self._running.get(ident)
        return None if running is None else running.log

    async def cancel(self, ident: str) -> None:
        """End a response in the making and wait until that is stored; others are left alone."""
        running = self._running.get(ident)
        if running is not None:
            running.making.cancel()
            await asyncio.wait({self._tasks[ident]})

    async def cancel_of(self, owner: str) -> None:
        """End all that a caller has in the making."""
        for ident in [ident for ident, item in self._running.items() if item.owner == owner]:
            await self.cancel(ident)

    async def close(self) -> None:
        """End all of them."""
        for ident in list(self._running):
            await self.cancel(ident)

    async def _finish(
        self, ident: str, running: _Running, stored: Callable[[ResponseObject], StoredResponse]
    ) -> None:
        builder, log, making = running.builder, running.log, running.making
        await asyncio.wait({making})
        try:
            making.result()
        except asyncio.CancelledError:
            log.add(builder.cancel())
        except Exception as error:
            log.add(builder.fail(failure_of(error, ident)))
        try:
            await asyncio.to_thread(self.file.save, stored(builder.response()), log.all())
        finally:
            del self._running[ident], self._tasks[ident]
            log.close()
