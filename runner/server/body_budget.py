"""The memory for the bodies of all requests together, and of one client's, and for what they read
from the disk or are answered with, where that is large.

A body takes from it as its bytes arrive, twice their number: for itself and for what is parsed of
it, which lasts as long as the request; strings with wide letters take more. Small bodies take
nothing, so that they pass while large ones have to wait: MAX_CONNECTIONS of them are bounded by
themselves.
"""

from __future__ import annotations

from collections import Counter
from contextvars import ContextVar
from typing import Final

from runner.server.caller import current_caller
from runner.server.errors import HttpError
from runner.turns import LARGE_BYTES

MAX_BODIES_BYTES: Final = 512 * 1024 * 1024
MAX_CLIENT_BYTES: Final = MAX_BODIES_BYTES // 2
MAX_ANSWER_BYTES: Final = MAX_CLIENT_BYTES // 2  # that count
_COPIES: Final = 2
_WIDE_COPIES: Final = 4  # more, of a string with a letter for which Python takes 4 bytes each
_STORED_COPIES: Final = 3  # of what is stored: its JSON, what is parsed of it, and the answer
_RETRY_AFTER_S: Final = 2


class BodyBudget:
    """What all requests hold of it."""

    def __init__(self) -> None:
        self._held = 0
        self._clients: Counter[str] = Counter()

    def change(self, client: str, held_bytes: int, wanted_bytes: int) -> None:
        """Hold wanted_bytes for client in place of held_bytes. Raises HttpError 503."""
        more = wanted_bytes - held_bytes
        if more > 0 and (
            self._held + more > MAX_BODIES_BYTES or self._clients[client] + more > MAX_CLIENT_BYTES
        ):
            raise HttpError(
                503,
                "bodies_too_large",
                f"the requests under way hold {self._held >> 20} MiB, and yours"
                f" {self._clients[client] >> 20} MiB of it: this one needs {more >> 20} MiB more,"
                f" and at most {MAX_BODIES_BYTES >> 20} MiB are for all,"
                f" {MAX_CLIENT_BYTES >> 20} MiB for one client; try again later",
                connection="close",
                **{"retry-after": str(_RETRY_AFTER_S)},
            )
        self._held += more
        self._clients[client] += more
        if not self._clients[client]:
            del self._clients[client]


class BodyMemory:
    """What one request holds of the budget."""

    __slots__ = ("_body", "_budget", "_client", "_more")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._client = ""
        self._body = self._more = 0

    def hold(self, size_bytes: int, wide_bytes: int = 0) -> None:
        """Have memory for a body of that size. wide_bytes: of its strings with letters beyond
        U+FFFF. Raises HttpError 503."""
        wanted = 0
        if size_bytes > LARGE_BYTES:
            wanted = size_bytes * _COPIES + wide_bytes * _WIDE_COPIES
        self._change(wanted, self._more)

    def hold_answer(self, size_bytes: int) -> None:
        """Have memory for an answer, of which what was stored is a part. One alone is never too
        much. Raises HttpError 503."""
        if size_bytes > LARGE_BYTES:
            self._change(self._body, max(self._more, min(size_bytes, MAX_ANSWER_BYTES)))

    def add_stored(self, size_bytes: int) -> None:
        """Have memory for so many bytes as well that are read from the disk, and for an answer with
        them. Raises HttpError 503."""
        if size_bytes > LARGE_BYTES:
            self._change(self._body, self._more + size_bytes * _STORED_COPIES)

    def release(self) -> None:
        """Give all of it back."""
        self._change(0, 0)

    def make_current(self) -> None:
        """The task's request has this."""
        _CURRENT.set(self)

    def _change(self, body: int, more: int) -> None:
        held, wanted = self._body + self._more, body + more
        if wanted != held:
            self._client = self._client or current_caller().share
            self._budget.change(self._client, held, wanted)
        self._body, self._more = body, more


_CURRENT: ContextVar[BodyMemory | None] = ContextVar("body_memory", default=None)


def hold_answer(size_bytes: int) -> None:
    """Have memory for what the request of this task is going to be answered with. Raises HttpError
    503."""
    memory = _CURRENT.get()
    if memory is not None:
        memory.hold_answer(size_bytes)


def hold_stored(size_bytes: int) -> None:
    """Have memory for what the request of this task is going to read from the disk, until it is
    answered. Raises HttpError 503."""
    memory = _CURRENT.get()
    if memory is not None:
        memory.add_stored(size_bytes)
