"""Notices a worker that makes no progress.

A worker sends a frame after each step, be it empty. Silence for nearly as long as a step may take
is then either a step too long, or work before the steps, of which the worker itself watches the
limits: it says which, and is ended GRACE_S after the limit at the latest if it does not answer.

Owns the measure of silence and its limits. Knows no frames and no process: a function ends a worker
that is silent for too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from runner.errors import HearthError, WorkerTimeout
from runner.types import WorkerStats

ANSWER_S = 4.0  # before the limit is the worker asked, but not before half of it
GRACE_S = 0.5


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; None: no limit. load_s is the limit of time without progress in loading."""

    load_s: float | None = 300.0
    step_s: float | None = 120.0


class Watchdog:
    """Watches one worker while it has something to do."""

    def __init__(
        self,
        name: Callable[[], str],
        timeouts: Timeouts,
        busy: Callable[[], bool],
        stats: Callable[[], Awaitable[WorkerStats]],
        end: Callable[[HearthError], None],
    ) -> None:
        """name: what to call the worker. busy: whether a request is in flight. end: called once
        with what is wrong."""
        self._name = name
        self._timeouts = timeouts
        self._busy = busy
        self._stats = stats
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._loaded = self._stopped = False
        self._heard_at_s = self._loop.time()
        self._age_s = 0.0  # of the step under way, when the worker was asked last
        self._timer: asyncio.TimerHandle | None = None
        self._examination: asyncio.Task[None] | None = None

    def touch(self) -> None:
        """There is something to do: start, or go on. Silence counts from the start."""
        examining = self._examination is not None and not self._examination.done()
        if self._timer is None and not examining:
            self.heard()
            self._watch()

    def heard(self) -> None:
        """The worker has made progress."""
        self._heard_at_s = self._loop.time()
        self._age_s = 0.0

    def loaded(self) -> None:
        """The model is loaded: from here on the limit is that of steps."""
        self._loaded = True
        self._cancel_timer()

    def stop(self) -> None:
        """The worker has ended."""
        self._stopped = True
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _watch(self) -> None:
        self._timer = None
        limit_s = self._timeouts.step_s if self._loaded else self._timeouts.load_s
        if self._stopped or limit_s is None or (self._loaded and not self._busy()):
            return
        silent_s = self._loop.time() - self._heard_at_s
        asked_s = max(limit_s / 2, limit_s - ANSWER_S) if self._loaded else limit_s
        if asked_s <= self._age_s < limit_s:
            asked_s = limit_s  # it answered since
        if silent_s < asked_s:
            self._timer = self._loop.call_later(asked_s - silent_s + 0.01, self._watch)
        elif self._loaded:
            self._examination = self._loop.create_task(self._examine(limit_s))
        else:
            message = (
                f"{self._name()} made no loading progress for {limit_s:g} s and was terminated"
            )
            self._end(WorkerTimeout(message))

    async def _examine(self, limit_s: float) -> None:
        """The worker's other thread knows how long the step under way has taken."""
        left_s = self._heard_at_s + limit_s + GRACE_S - self._loop.time()
        try:
            stats = await asyncio.wait_for(self._stats(), max(left_s, GRACE_S))
            age_s = stats.step_age_s or 0.0
        except (TimeoutError, HearthError):
            age_s = self._loop.time() - self._heard_at_s
        if age_s >= limit_s:
            message = (
                f"a step of {self._name()} took more than {limit_s:g} s (HEARTH_STEP_TIMEOUT); the "
                "worker was terminated, and the next request starts it again"
            )
            self._end(WorkerTimeout(message))
            return
        self._age_s = age_s
        self._heard_at_s = self._loop.time() - age_s
        self._watch()
