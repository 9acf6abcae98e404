"""Work beside the engine's steps, in turns: few at a time, each until it pauses, ends or is given
up.

What can be stopped is stopped: work of which nobody wants the result ends at its next pause. What
cannot be, native code that does not come back, loses its turn after limit_s, and its thread is left
alone: what waits for it is told, and the others go on. Knows nothing of requests.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from runner.backends.turns import on_pause
from runner.errors import WorkerTimeout

# std::regex, with which llama.cpp splits texts into words, recurses for each character, and needs
# 50 MB for the longest part of a text. These are addresses only, until they are used.
STACK_BYTES: Final = 256 << 20
LONG_WORK: Final = 32 << 10  # characters; shorter work goes first
MAX_WAIT_S: Final = 30.0  # after which long work goes before shorter
MAX_LONG_WORKS: Final = 8  # begun and not ended; each has a thread
STOP_GRACE_S: Final = 0.8  # in which interrupted Python code ends

T = TypeVar("T")


class GivenUp(BaseException):
    """Nobody waits for this work any more. No Exception, so that no code takes it for its own."""


class _Work:
    """One piece of work, and the thread that does it."""

    def __init__(self, call: Callable[[], Any], done: asyncio.Future[Any], *, long: bool) -> None:
        self.call = call
        self.done = done
        self.long = long
        self.go = threading.Event()
        self.waits_since_s = time.monotonic()
        self.turn_since_s: float | None = None
        self.given_up = self.ended = False
        self.thread_id: int | None = None  # None: it has not begun


class Turns:
    """Threads that share turns. Called on the event loop's thread."""

    def __init__(
        self,
        name: str,
        *,
        limit_s: float | None,
        at_once: int = 1,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """limit_s: of one turn; None: there is none. at_once: how many may have theirs. on_lost:
        called on the loop for each thread that does not end though it should."""
        self._name = name
        self._limit_s = limit_s
        self._at_once = at_once
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._short: deque[_Work] = deque()  # those that wait
        self._long: deque[_Work] = deque()
        self._new: deque[_Work] = deque()  # long ones too, of which none has begun
        self._begun: set[_Work] = set()  # long ones
        self._active: set[_Work] = set()
        self._idle: list[SimpleQueue[_Work]] = []  # of the threads

    async def run(self, call: Callable[..., T], *arguments: Any, size: int = 0) -> T:
        """The result of call. size: characters of its texts. Cancelled: it ends at its next pause.
        Raises WorkerTimeout for one that had its turn for limit_s."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        work = _Work(lambda: call(*arguments), done, long=size > LONG_WORK)
        with self._lock:
            (self._new if work.long else self._short).append(work)
            self._next()
        try:
            wait_s = self._limit_s
            while not (await asyncio.wait({done}, timeout=wait_s))[0]:
                wait_s = self._left_s(work)
                if wait_s is not None and wait_s <= 0:
                    raise WorkerTimeout(
                        f"the {self._name} of the request took more than {self._limit_s:g} s; it "
                        "was given up"
                    )
            return done.result()
        finally:
            if not done.done():
                self._give_up(work, loop)

    def _left_s(self, work: _Work) -> float | None:
        """Of its turn; all of it while it waits for one."""
        since_s = work.turn_since_s
        if self._limit_s is None or since_s is None:
            return self._limit_s
        return since_s + self._limit_s - time.monotonic()

    def _give_up(self, work: _Work, loop: asyncio.AbstractEventLoop) -> None:
        """Nobody waits for the work: it ends at its next pause. A stuck one loses its turn."""
        with self._lock:
            work.given_up = True
            left_s = self._left_s(work)
            if work.ended or left_s is None or left_s > 0:
                return
            self._leave(work)
            if work.thread_id is not None:  # ends what is Python
                interrupt = ctypes.pythonapi.PyThreadState_SetAsyncExc
                interrupt(ctypes.c_ulong(work.thread_id), ctypes.py_object(GivenUp))
        loop.call_later(STOP_GRACE_S, lambda: None if work.ended else self._on_lost())

    def _next(self) -> None:
        """With the lock: turns for those that wait, while there are any."""
        while len(self._active) < self._at_once:
            self._admit()
            waiting = self._short or self._long
            if not waiting:
                return
            now_s = time.monotonic()
            if self._long and now_s - self._long[0].waits_since_s > MAX_WAIT_S:
                waiting = self._long
            work = waiting.popleft()
            self._active.add(work)
            work.turn_since_s = now_s
            if work.thread_id is None:
                self._thread().put(work)
            work.go.set()

    def _admit(self) -> None:
        """With the lock: let new long works begin."""
        while self._new and len(self._begun) < MAX_LONG_WORKS:
            self._begun.add(self._new[0])
            self._long.append(self._new.popleft())

    def _leave(self, work: _Work) -> None:
        """With the lock: its turn and its work are over."""
        self._active.discard(work)
        self._begun.discard(work)
        self._next()

    def _thread(self) -> SimpleQueue[_Work]:
        """An idle thread's, or a new one's."""
        if self._idle:
            return self._idle.pop()
        queue: SimpleQueue[_Work] = SimpleQueue()
        thread = threading.Thread(target=self._serve, args=(queue,), name=self._name, daemon=True)
        before = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
        return queue

    def _pause(self, work: _Work) -> None:
        if work.given_up:
            raise GivenUp
        with self._lock:
            work.turn_since_s = work.waits_since_s = time.monotonic()
            if not (self._short or self._long or self._new):
                return
            work.turn_since_s = None
            work.go.clear()
            self._active.discard(work)
            self._admit()
            self._long.append(work)
            self._next()
        work.go.wait()
        if work.given_up:
            raise GivenUp

    def _serve(self, queue: SimpleQueue[_Work]) -> None:
        """What a thread does until it is left behind."""
        while True:
            work = queue.get()
            with suppress(GivenUp):  # it came late
                self._do(work)
            with self._lock:
                work.ended = True
                self._leave(work)
                if work.given_up:  # an interruption may be on its way
                    return
                self._idle.append(queue)

    def _do(self, work: _Work) -> None:
        work.thread_id = threading.get_ident()
        on_pause(lambda: self._pause(work))
        loop = work.done.get_loop()
        try:
            if not work.given_up:
                loop.call_soon_threadsafe(_settle, work.done, work.call(), None)
        except GivenUp:
            return
        except BaseException as error:
            loop.call_soon_threadsafe(_settle, work.done, None, error)


def _settle(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
