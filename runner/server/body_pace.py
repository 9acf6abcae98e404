"""How slowly a client may send the body of a request.

Only the time in which the daemon waits for the client counts. Knows no connection.
"""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive

from runner.server.errors import HttpError

WINDOW_S = 30.0
MIN_BYTES = 32 * 1024  # in each window: 1.1 KB/s, where a slow line of today has 20
MAX_BODY_S = 600.0  # of JSON
MAX_UPLOAD_S = 24 * 3600.0  # of a file


class BodyPace:
    """The body of one request. max_s: the longest that the client may take for all of it."""

    __slots__ = ("_left_s", "_max_s", "_received_bytes", "_window_left_s")

    def __init__(self, max_s: float) -> None:
        self._max_s = self._left_s = max_s
        self._window_left_s = WINDOW_S
        self._received_bytes = 0

    async def receive(self, receive: Receive) -> Message:
        """The next message of receive. Raises HttpError 408."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with asyncio.timeout(min(self._left_s, self._window_left_s)):
                message = await receive()
        except TimeoutError:
            raise self._refusal() from None
        waited_s = loop.time() - began_s
        self._left_s -= waited_s
        self._window_left_s -= waited_s
        self._received_bytes += len(message.get("body", b""))
        if self._received_bytes >= MIN_BYTES:
            self._window_left_s, self._received_bytes = WINDOW_S, 0
        return message

    def _refusal(self) -> HttpError:
        message = f"the request body was not received within {self._max_s:g} s"
        if self._window_left_s < self._left_s:
            message = (
                f"{self._received_bytes} bytes of the request body came in {WINDOW_S:g} s; at least"
                f" {MIN_BYTES} must"
            )
        return HttpError(408, "timeout", message, connection="close")
