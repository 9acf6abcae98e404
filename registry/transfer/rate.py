"""The pace of a transfer: the bandwidth limit, the waits after failures, the number of streams.

Owns the arithmetic. Sends and stores nothing.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

MAX_FAULTS = 7  # in a row, with not one chunk between: about a minute of waits
_FIRST_WAIT_S = 0.5
_MAX_WAIT_S = 30.0

FIRST_STREAMS = 2
MAX_STREAMS = 12
_GAIN = 1.08  # a stream more must bring this much, or it was one too many


class RateLimit:
    """At most so many bytes a second over all transfers; None: no limit."""

    def __init__(
        self, bytes_per_s: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._free_at_s = 0.0

    @property
    def set(self) -> bool:
        """True when there is a limit."""
        return self._bytes_per_s is not None

    async def take(self, count: int) -> None:
        """Wait until count bytes more fit."""
        if self._bytes_per_s is None:
            return
        now_s = self._clock()
        self._free_at_s = max(self._free_at_s, now_s) + count / self._bytes_per_s
        await asyncio.sleep(max(0.0, self._free_at_s - now_s))


class Backoff:
    """The waits of one transfer: doubling, with jitter, longer where the server asks for it."""

    def __init__(self, scale: float = 1.0, random_unit: Callable[[], float] = random.random):
        self.faults = 0
        self._scale = scale
        self._random_unit = random_unit
        self._not_before_s = 0.0

    def progressed(self) -> None:
        """A chunk has arrived."""
        self.faults = 0

    def failed(self, now_s: float, after_s: float | None) -> float | None:
        """How long to wait, in seconds; None when it is time to give up."""
        self.faults += 1
        if self.faults > MAX_FAULTS:
            return None
        max_wait_s = min(_MAX_WAIT_S, _FIRST_WAIT_S * 2.0 ** (self.faults - 1))
        wait_s = max_wait_s * (0.5 + 0.5 * self._random_unit()) * self._scale
        if after_s is not None:
            self._not_before_s = max(self._not_before_s, now_s + after_s)
        return max(wait_s, self._not_before_s - now_s)

    def hold_s(self, now_s: float) -> float:
        """How long the server still wants to be left alone."""
        return max(0.0, self._not_before_s - now_s)


class Streams:
    """How many streams at once: one more as long as that makes the whole faster, half as many
    after a refusal."""

    def __init__(self, max_streams: int = MAX_STREAMS) -> None:
        self.wanted = min(FIRST_STREAMS, max_streams)
        self._max_streams = max_streams
        self._best_rate = 0.0
        self._settled = False

    def measured(self, rate: float) -> None:
        """Take note of the bytes a second of the last interval."""
        if self._settled or rate <= 0:
            return
        if rate > self._best_rate * _GAIN:
            self._best_rate = rate
            self.wanted = min(self.wanted + 1, self._max_streams)
        else:
            self.wanted = max(1, self.wanted - 1)
            self._settled = True

    def refused(self) -> None:
        """The server is overloaded."""
        self.wanted = max(1, self.wanted // 2)
        self._settled = True

    def single(self) -> None:
        """The server sends whole files only."""
        self.wanted = self._max_streams = 1
        self._settled = True
