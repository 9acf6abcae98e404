"""A cache that grows: the owner of the memory is asked for more, then the backend enlarges it.

Knows no sequences. All of this takes place between two steps.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from runner.backends.backend import Backend

log = logging.getLogger(__name__)

RETRY_S = 5.0  # after a refusal nobody is asked for so long


class PoolGrowth:
    """Lets the cache of a backend grow up to limit_tokens."""

    def __init__(
        self,
        backend: Backend,
        limit_tokens: int,
        ask: Callable[[int], int],
        grown: Callable[[int], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """ask: how many tokens the cache may have, for at least how many are needed; fewer where
        memory does not allow it. It may take seconds. grown: gets the new size."""
        self.limit_tokens = limit_tokens
        self._backend = backend
        self._ask = ask
        self._grown = grown
        self._clock = clock
        self._refused_s: float | None = None

    def grow(self, tokens: int) -> None:
        """Let the cache have tokens, if it may. Raises BackendError when its content is lost."""
        now_s = self._clock()
        refused_s, tokens = self._refused_s, min(tokens, self.limit_tokens)
        had = self._backend.capacity.pool_tokens
        if tokens <= had or (refused_s is not None and now_s < refused_s + RETRY_S):
            return
        granted = min(self._ask(tokens), self.limit_tokens)
        if granted > had:
            began_s = self._clock()
            self._backend.grow(granted)
            self._grown(granted)
            log.info(
                "the cache has %d tokens in place of %d; all waited %.3f s for it",
                *(self._backend.capacity.pool_tokens, had, self._clock() - began_s),
            )
        grown = self._backend.capacity.pool_tokens >= tokens
        self._refused_s = None if grown else self._clock()
