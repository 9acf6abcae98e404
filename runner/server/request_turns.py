"""How much of what clients send is taken up in one pass of the event loop.

A pass serves all that is ready, and each request that is begun, or piece of a body that is passed
on, takes a millisecond or so: of thousands that come at once each would wait for all others, and so
would /health. Here they wait in the order they came, while new connections and answers go on. Knows
no HTTP.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

MAX_TURNS: Final = 4  # of a pass
MAX_PASS_S: Final = 0.005  # of a pass: after so long nothing more is begun


class RequestTurns:
    """Of one server. Lives on the event loop."""

    def __init__(self) -> None:
        self._in_pass = False  # something was begun in it
        self._left = 0
        self._until_s = 0.0
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self) -> bool:
        """Whether there is a turn now; otherwise the caller is to wait."""
        if self._waiting:
            return False
        if not self._in_pass:
            self._begin_pass()
        elif not self._left or time.monotonic() > self._until_s:
            return False
        self._left -= 1
        return True

    def wait(self, go_on: Callable[[], None]) -> None:
        """go_on is called when its turn comes."""
        self._waiting.append(go_on)
        if not self._in_pass:
            self._begin_pass()

    def _begin_pass(self) -> None:
        self._in_pass = True
        self._left = MAX_TURNS
        self._until_s = time.monotonic() + MAX_PASS_S
        asyncio.get_running_loop().call_soon(self._next_pass)

    def _next_pass(self) -> None:
        """Comes after what the turns of the last pass have begun."""
        self._in_pass = False
        if not self._waiting:
            return
        self._begin_pass()
        while self._waiting and self._left and time.monotonic() < self._until_s:
            self._left -= 1
            self._waiting.popleft()()
