"""The requests that are being answered, for those who watch over the daemon: who sent which, since
when, and the end of one. Never what it says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from runner.server.caller import current_caller
from runner.server.errors import HttpError

_NOT_RETRIED = 499  # clients send again what ends with 408, 409, 429 or 5xx


@dataclass(slots=True)
class RequestInFlight:
    """A request whose handler runs. client: the id of its key, else its user or address, see
    Caller.share; empty: a command of the daemon's own user."""

    number: int
    method: str
    path: str
    address: str
    model: str | None
    task: asyncio.Task[object] | None
    client: str = field(default_factory=lambda: current_caller().share)
    began_s: float = field(default_factory=time.monotonic)
    cancelled: bool = False

    @property
    def age_s(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self.began_s


class RequestsInFlight:
    """Those of a daemon, by their numbers."""

    def __init__(self) -> None:
        self._count = 0
        self._running: dict[int, RequestInFlight] = {}

    def __iter__(self) -> Iterator[RequestInFlight]:
        return iter(list(self._running.values()))

    @contextmanager
    def running(
        self, method: str, path: str, address: str, model: str | None
    ) -> Iterator[RequestInFlight]:
        """The block, in which this task answers a request, can be ended with cancel. Raises
        HttpError then."""
        self._count += 1
        task = asyncio.current_task()
        request = RequestInFlight(self._count, method, path, address, model, task)
        self._running[request.number] = request
        try:
            yield request
        except asyncio.CancelledError:
            if not request.cancelled or task is None:
                raise
            task.uncancel()
            raise HttpError(
                _NOT_RETRIED,
                "request_cancelled",
                "the request was cancelled by those who run this daemon",
            ) from None
        finally:
            del self._running[request.number]

    def cancel(self, number: int) -> RequestInFlight | None:
        """End a request; its client is told. None: it has ended already."""
        request = self._running.get(number)
        if request is not None and request.task is not None and not request.cancelled:
            request.cancelled = True
            request.task.cancel()
        return request
