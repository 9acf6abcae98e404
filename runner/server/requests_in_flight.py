"""The requests in progress, for whoever operates the daemon: who sent each and when; cancels one.
Never their content."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from runner.server.caller import current_caller
from runner.server.errors import HttpError

_NOT_RETRIED = 499  # clients send again what ends with 408, 409, 429 or 5xx


class RequestInFlight:
    """A request, in flight while its block runs. client: the id of its key, else its user or
    address, see Caller.share; empty: a command of the daemon's own user."""

    __slots__ = ("_all", "_cancelled", "_task", "address", "began_s", "client", "method", "model",
                 "number", "path")  # fmt: skip

    def __init__(
        self, running: RequestsInFlight, method: str, path: str, address: str, model: str | None
    ) -> None:
        self._all = running
        self._cancelled = False
        self._task = asyncio.current_task()
        self.number = 0
        self.method = method
        self.path = path
        self.address = address
        self.model = model
        self.client = current_caller().share
        self.began_s = time.monotonic()

    @property
    def age_s(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self.began_s

    def cancel(self) -> None:
        """Cancel it; its client gets an error."""
        if self._task is not None and not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    def __enter__(self) -> RequestInFlight:
        self._all.add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._all.drop(self)
        if self._cancelled and self._task is not None and kind is asyncio.CancelledError:
            self._task.uncancel()
            message = "the request was cancelled by those who run this daemon"
            raise HttpError(_NOT_RETRIED, "request_cancelled", message) from None


class RequestsInFlight:
    """Those of a daemon, by their numbers."""

    def __init__(self) -> None:
        self._count = 0
        self._running: dict[int, RequestInFlight] = {}

    def __iter__(self) -> Iterator[RequestInFlight]:
        return iter(list(self._running.values()))

    def running(self, method: str, path: str, address: str, model: str | None) -> RequestInFlight:
        """What this task answers in the block. HttpError leaves the block when it is cancelled."""
        return RequestInFlight(self, method, path, address, model)

    def find(self, number: int) -> RequestInFlight | None:
        """The request, unless it has ended."""
        return self._running.get(number)

    def add(self, request: RequestInFlight) -> None:
        """It begins, and gets its number."""
        self._count += 1
        request.number = self._count
        self._running[self._count] = request

    def drop(self, request: RequestInFlight) -> None:
        """It has ended."""
        del self._running[request.number]
