"""Responses that are made without a client waiting: one task each, ended with the daemon.

Owns the tasks. What became of one is in the file of responses; one that a daemon did not live to
finish counts as failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from runner.server.errors import failure_of
from runner.server.openai.responses.building import Builder
from runner.server.openai.responses.storing import ResponseFile, Stored

Make = Callable[[Callable[[Builder], None]], Awaitable[None]]
_UNFINISHED = ("queued", "in_progress")


@dataclass(slots=True)
class _Running:
    builder: Builder
    task: asyncio.Task[None] | None = None


class Background:
    """The responses in the making."""

    def __init__(self, file: ResponseFile) -> None:
        self.file = file
        self._running: dict[str, _Running] = {}

    def start(
        self, ident: str, make: Make, builder: Builder, stored: Callable[[dict[str, Any]], Stored]
    ) -> None:
        """Make a response. make is given a function to show the builder it works with; builder
        stands for it before that. stored: what to keep of the response."""
        running = _Running(builder)
        self._running[ident] = running
        running.task = asyncio.create_task(self._run(ident, running, make, stored))

    def state(self, ident: str) -> dict[str, Any] | None:
        """A response in the making as it stands; None when it is not one."""
        running = self._running.get(ident)
        return None if running is None else running.builder.response()

    def settled(self, stored: Stored) -> Stored:
        """stored, or its failure when it was left unfinished."""
        response = stored.response
        if response["status"] not in _UNFINISHED or response["id"] in self._running:
            return stored
        error = {"code": "server_error", "message": "the daemon ended before the response did"}
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
        stored: Callable[[dict[str, Any]], Stored],
    ) -> None:
        def show(builder: Builder) -> None:
            running.builder = builder

        try:
            await make(show)
        except asyncio.CancelledError:
            running.builder.cancel()
        except Exception as error:
            running.builder.fail(failure_of(error, ident))
        finally:
            await asyncio.to_thread(self.file.save, stored(running.builder.response()))
            del self._running[ident]
