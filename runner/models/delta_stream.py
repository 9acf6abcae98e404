"""The daemon's end of one request to a worker: deltas arrive here and wait for their reader.

Knows nothing of frames, processes or HTTP. A slow reader costs memory only up to a bound: the
sequences of which too much waits are paused until it is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from runner.errors import HearthError
from runner.types import Delta, Finish

MAX_WAITING = 64  # deltas of each sequence
MAX_WAITING_LOGPROBS = 16_384  # of all of them, prompts included; about 50 MB at top-20


class DeltaStream:
    """What a worker sends for `count` sequences that were asked for together. The arguments are
    those of attach.
    """

    __slots__ = ("_cancel", "_error", "_logprobs", "_max_waiting", "_pause", "_paused", "_pending",
                 "_reading", "_resume", "_waiter", "begun", "on_finish", "on_lost",
                 "open")  # fmt: skip

    def __init__(
        self,
        count: int,
        cancel: Callable[[], None] | None = None,
        pause: Callable[[int], None] | None = None,
        resume: Callable[[int], None] | None = None,
    ) -> None:
        self.open = count  # sequences without a finish so far
        self.begun = False  # a delta has arrived
        self.on_finish: Callable[[Finish], None] | None = None  # called as each of them ends
        # Called with an error that ends the request before it has begun. True: it goes on elsewhere
        self.on_lost: Callable[[HearthError], bool] | None = None
        self.attach(cancel, pause, resume)
        self._paused: set[int] = set()
        self._pending: list[tuple[int, Delta]] = []
        self._logprobs = 0  # in _pending
        self._max_waiting = count * MAX_WAITING
        self._reading = False  # somebody is about to take what is pending
        self._error: HearthError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def attach(
        self,
        cancel: Callable[[], None] | None,
        pause: Callable[[int], None] | None = None,
        resume: Callable[[int], None] | None = None,
    ) -> None:
        """cancel is called once, when the reader ends before the sequences do. pause is called with
        the index of a sequence that shall send nothing for now, resume when it may go on."""
        self._cancel = cancel
        self._pause = pause
        self._resume = resume

    @property
    def done(self) -> bool:
        """True when all sequences have ended and everything has been read."""
        return self.open == 0 and not self._pending

    def push(self, index: int, delta: Delta) -> None:
        """Add what a step gave the sequence with this index."""
        self._pending.append((index, delta))
        self.begun = True
        if delta.logprobs or delta.prompt:
            self._logprobs += len(delta.logprobs) + len(delta.prompt)
        if delta.finish is not None:
            self.open -= 1
            self._paused.discard(index)
            if self.on_finish is not None:
                self.on_finish(delta.finish)
        elif not self._reading and self._full and index not in self._paused and self._pause:
            self._paused.add(index)
            self._pause(index)
        self.wake()

    def fail(self, error: HearthError) -> None:
        """End the request with error; the first one counts. What has arrived can be read."""
        if self._error is None and self.open:
            if self.on_lost is not None and not self.begun and self.on_lost(error):
                return
            self._error = error
            self._cancel = None
        self.wake()

    def wake(self) -> None:
        """Let a waiting read return, with nothing if nothing has arrived."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def read(self) -> list[tuple[int, Delta]]:
        """All that has arrived since the last read, in order; waits when there is nothing.
        Empty after wake. Raises the error that ended the request."""
        if not self._pending and self._error is None and self.open:
            self._waiter = asyncio.get_running_loop().create_future()
            self._reading = True
            try:
                await self._waiter
            finally:
                self._reading = False
        if self._pending:
            arrived, self._pending, self._logprobs = self._pending, [], 0
            if self._paused:
                self._go_on()
            return arrived
        if self._error is not None:
            raise self._error
        return []

    def cancel(self) -> None:
        """Stop the sequences that have not ended. Calling it twice is allowed."""
        cancel, self._cancel = self._cancel, None
        if cancel is not None and self.open:
            cancel()

    @property
    def _full(self) -> bool:
        return len(self._pending) >= self._max_waiting or self._logprobs >= MAX_WAITING_LOGPROBS

    def _go_on(self) -> None:
        paused, self._paused = self._paused, set()
        if self._resume is not None and self._error is None:
            for index in paused:
                self._resume(index)
