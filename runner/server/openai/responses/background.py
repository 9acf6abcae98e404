"""Responses that are made without a client waiting: one task each, ended with the daemon.

Owns the tasks. What became of one is in the file of responses; one that a daemon did not live to
finish counts as failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from runner.server.errors import failure_of
from runner.server.openai.answers import ResponseObject
from runner.server.openai.responses.builder import ResponseBuilder
from runner.server.openai.responses.events import EventLog
from runner.server.openai.responses.response_store import ResponseStore, StoredResponse

Make = Callable[[ResponseBuilder, EventLog], Awaitable[None]]
_UNFINISHED = ("queued", "in_progress")


@dataclass(slots=True)
class _Running:
    builder: ResponseBuilder
    log: EventLog
    task: asyncio.Task[None] | None = None


class BackgroundResponses:
    """The responses in the making."""

    def __init__(self, file: ResponseStore) -> None:
        self.file = file
        self._running: dict[str, _Running] = {}

    def start(
        self,
        ident: str,
        make: Make,
        builder: ResponseBuilder,
        stored: Callable[[ResponseObject], StoredResponse],
    ) -> EventLog:
        """Make a response with builder, and log its events. stored: what to keep of it."""
        running = _Running(builder, EventLog())
        running.log.add(builder.queue())
        self._running[ident] = running
        running.task = asyncio.create_task(self._run(ident, running, make, stored))
        return running.log

    def state(self, ident: str) -> ResponseObject | None:
        """A response in the making as it stands; None when it is not one."""
        running = self._running.get(ident)
        return None if running is None else running.builder.response()

    def log(self, ident: str) -> EventLog | None:
        """The events of a response in the making; None when it is not one."""
        running = self._running.get(ident)
        return None if running is None else running.log

    def settled(self, stored: StoredResponse) -> StoredResponse:
        """stored, or its failure when it was left unfinished."""
        response = stored.response
        if response["status"] not in _UNFINISHED or response["id"] in self._running:
            return stored
        error = {
            "code": "server_error",
            "message": "the daemon stopped before the response was complete",
        }
        return replace(stored, response={**response, "status": "failed", "error": error})

    async def cancel(self, ident: str) -> None:
        """End a response in the making and wait until that is stored; others are left alone."""
        running = self._running.get(ident)
        if running is not None and running.task is not None:
            running.task.cancel()
            await asyncio.wait({running.task})

    async def close(self) -> None:
        """End all of them."""
        for ident in list(self._running):
            await self.cancel(ident)

    async def _run(
        self,
        ident: str,
        running: _Running,
        make: Make,
        stored: Callable[[ResponseObject], StoredResponse],
    ) -> None:
        builder, log = running.builder, running.log
        try:
            await make(builder, log)
        except asyncio.CancelledError:
            log.add(builder.cancel())
        except Exception as error:
            log.add(builder.fail(failure_of(error, ident)))
        finally:
            try:
                await asyncio.to_thread(self.file.save, stored(builder.response()), log.all())
            finally:
                del self._running[ident]
                log.close()
