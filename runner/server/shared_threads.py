"""The threads for what blocks: disk, SQLite and name look-ups, of all requests together.

asyncio has a few threads for all of it, in the order in which it comes: six look-ups at a name
server that does not answer would stop every other request. Here a client has only so many at a
time, and what else it wants waits for its own.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from runner.server.caller import current_caller

MAX_THREADS: Final = 24
MAX_OF_ONE: Final = 6  # as many as asyncio has on two cores

P = ParamSpec("P")
T = TypeVar("T")
_Waiting = tuple[Future[Any], Callable[[], Any]]


class SharedThreads(ThreadPoolExecutor):
    """To be a loop's default executor. Clients are told apart by current_caller."""

    def __init__(self, max_threads: int = MAX_THREADS, max_of_one: int = MAX_OF_ONE) -> None:
        super().__init__(max_threads, thread_name_prefix="blocking")
        self._max_of_one = max_of_one
        self._begun: Counter[str] = Counter()  # handed to the threads and not done, by client
        self._waiting: dict[str, deque[_Waiting]] = {}
        self._turns = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See Executor. It waits while its client has as many as one may have."""
        share, future = current_caller().share, Future[T]()
        item = future, partial(fn, *args, **kwargs)
        with self._turns:
            if self._begun[share] >= self._max_of_one:
                self._waiting.setdefault(share, deque()).append(item)
                return future
            self._begun[share] += 1
        super().submit(self._run, share, item)
        return future

    def _run(self, share: str, item: _Waiting) -> None:
        future, work = item
        try:
            if future.set_running_or_notify_cancel():
                future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
        del future, work, item  # the next one may be long in coming
        self._begin_next(share)

    def _begin_next(self, share: str) -> None:
        """Hand on the client's next one, behind what others have handed in meanwhile."""
        with self._turns:
            waiting = self._waiting.get(share)
            if waiting is None:
                self._begun[share] -= 1
                if not self._begun[share]:
                    del self._begun[share]
                return
            item = waiting.popleft()
            if not waiting:
                del self._waiting[share]
        try:
            super().submit(self._run, share, item)
        except RuntimeError:  # the daemon ends
            item[0].cancel()
