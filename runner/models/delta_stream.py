"""The daemon's end of one request to a worker: deltas arrive here and wait for their reader.

Knows nothing of frames, processes or HTTP. A slow reader costs memory only up to a bound: waiting
deltas of one sequence are joined, and past the bound the request ends with an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from runner.errors import HearthError, RequestError
from runner.types import Delta, Finish

JOIN_AT = 256  # waiting deltas before they are joined
MAX_WAITING_LOGPROBS = 16_384  # joined deltas keep every log-probability; about 50 MB at top-20


class DeltaStream:
    """What a worker sends for `count` sequences that were asked for together.

    cancel is called once, when the reader ends before the sequences do.
    """

    __slots__ = ("_cancel", "_error", "_joined_at", "_pending", "_waiter", "on_finish", "open")

    def __init__(self, count: int, cancel: Callable[[], None]) -> None:
        self.open = count  # sequences without a finish so far
        self.on_finish: Callable[[Finish], None] | None = None  # called as each of them ends
        self._cancel: Callable[[], None] | None = cancel
        self._pending: list[tuple[int, Delta]] = []
        self._joined_at = JOIN_AT
        self._error: HearthError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def done(self) -> bool:
        """True when all sequences have ended and everything has been read."""
        return self.open == 0 and not self._pending

    def push(self, index: int, delta: Delta) -> None:
        """Add what a step gave the sequence with this index."""
        self._pending.append((index, delta))
        if delta.finish is not None:
            self.open -= 1
            if self.on_finish is not None:
                self.on_finish(delta.finish)
        elif len(self._pending) >= self._joined_at:
            self._join()
        self.wake()

    def fail(self, error: HearthError) -> None:
        """End the request with error; the first one counts. What has arrived can be read."""
        if self._error is None and self.open:
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
            await self._waiter
        if self._pending:
            arrived, self._pending = self._pending, []
            self._joined_at = JOIN_AT
            return arrived
        if self._error is not None:
            raise self._error
        return []

    def cancel(self) -> None:
        """Stop the sequences that have not ended. Calling it twice is allowed."""
        cancel, self._cancel = self._cancel, None
        if cancel is not None and self.open:
            cancel()

    def _join(self) -> None:
        joined: dict[int, list[Delta]] = {}
        for index, delta in self._pending:
            joined.setdefault(index, []).append(delta)
        self._pending = [(index, _joined(deltas)) for index, deltas in joined.items()]
        self._joined_at = len(self._pending) + JOIN_AT
        if sum(_logprobs(delta) for _, delta in self._pending) > MAX_WAITING_LOGPROBS:
            cancel = self._cancel
            self.fail(RequestError("the client reads too slowly; the response was cancelled"))
            if cancel is not None:
                cancel()


def _logprobs(delta: Delta) -> int:
    return len(delta.logprobs) + len(delta.prompt)


def _joined(deltas: list[Delta]) -> Delta:
    return Delta(
        "".join(delta.text for delta in deltas),
        sum(delta.token_count for delta in deltas),
        tuple(item for delta in deltas for item in delta.logprobs),
        deltas[-1].finish,
        tuple(item for delta in deltas for item in delta.prompt),
        next((delta.progress for delta in reversed(deltas) if delta.progress), None),
    )
