"""An event loop whose time is simulated: it moves only when nothing is left to do now, at once to
the next timer. Work for other threads runs on the loop itself."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping
from typing import Any


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Deterministic, and hours take milliseconds."""

    def __init__(self, thread_s: float = 0.001) -> None:
        """thread_s: how long work in another thread takes."""
        self._thread_s = thread_s
        self._now_s = 0.0
        super().__init__(_InstantSelector(self._pass))

    def time(self) -> float:
        """Simulated seconds since the loop was made."""
        return self._now_s

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """Call func after thread_s."""
        future = self.create_future()
        self.call_later(self._thread_s, _call, future, func, *args)
        return future

    def _pass(self, seconds: float) -> None:
        self._now_s += seconds


def _call(future: asyncio.Future[Any], func: Callable[..., Any], *args: Any) -> None:
    if future.cancelled():
        return
    try:
        future.set_result(func(*args))
    except Exception as error:
        future.set_exception(error)


class _InstantSelector(selectors.BaseSelector):
    """Lets the time pass in which nothing would happen. No file is ever ready."""

    def __init__(self, wait: Callable[[float], None]) -> None:
        self._wait = wait
        self._files = selectors.DefaultSelector()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._files.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._files.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._files.get_map()

    def close(self) -> None:
        self._files.close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing will ever happen: every task waits for another")
        self._wait(max(0.0, timeout))
        return []
