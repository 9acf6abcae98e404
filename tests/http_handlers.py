"""A transport of the daemon's client that a function answers: it takes an httpx.Request and gives
an httpx.Response."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from runner.http_transport import Request

Handler = Callable[[httpx.Request], httpx.Response]


class HandlerResponse:
    """See runner.http_transport.Response."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.reason = response.reason_phrase
        self._response = response
        self._chunks = response.iter_bytes()

    def getheader(self, name: str) -> str | None:
        return self._response.headers.get(name)

    def read(self) -> bytes:
        return b"".join(self._chunks)

    def read1(self, size: int) -> bytes:
        return next((chunk for chunk in self._chunks if chunk), b"")


class HandlerTransport:
    """Answers every request with what handler returns for it."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    @contextmanager
    def __call__(self, request: Request) -> Iterator[HandlerResponse]:
        url = f"http://127.0.0.1:1{request.path}"
        content = b"".join(request.content)
        response = self._handler(
            httpx.Request(request.method, url, headers=dict(request.headers), content=content)
        )
        try:
            yield HandlerResponse(response)
        finally:
            response.close()
