"""Whose native call is next: one at a time, the client that had least of the model first.

Each request has a thread of its own; what it computes natively goes through here. Owns the order
and the clock of the call under way. Knows no model.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from runner.engine.fair_share import FairShare

T = TypeVar("T")


class Cancelled(Exception):
    """The client of the request is gone."""


@dataclass(slots=True, eq=False)
class Job:
    """A request being worked on."""

    id: str
    client: str
    cancelled: bool = False


class Turns:
    """The order of the calls of all jobs."""

    def __init__(self, stepped: Callable[[], None]) -> None:
        """stepped: called after each call, in its thread."""
        self.calls = 0
        self._stepped = stepped
        self._share = FairShare()
        self._waiting: list[Job] = []
        self._began_s: float | None = None
        self._changed = threading.Condition()
        self._current = threading.local()

    @property
    def step_age_s(self) -> float | None:
        """How long the call under way has taken; None: there is none."""
        began_s = self._began_s
        return None if began_s is None else time.monotonic() - began_s

    def begin(self, job: Job) -> None:
        """This thread works for job from now on."""
        self._current.job = job
        with self._changed:
            self._share.enter(job.client)

    def end(self, job: Job) -> None:
        """It does not any more."""
        with self._changed:
            self._share.leave(job.client)

    def cancel(self, job: Job) -> None:
        """Let the job end before its next call."""
        with self._changed:
            job.cancelled = True
            self._changed.notify_all()

    def run(self, call: Callable[..., T], *arguments: object, **named: object) -> T:
        """The result of a native call, made when this thread's job has its turn. Raises Cancelled,
        and what the call raises."""
        job: Job = self._current.job
        self._take(job)
        try:
            return call(*arguments, **named)
        finally:
            self._give_back(job)

    def _take(self, job: Job) -> None:
        with self._changed:
            self._waiting.append(job)
            self._changed.wait_for(
                lambda: job.cancelled or (self._began_s is None and self._next() is job)
            )
            self._waiting.remove(job)
            if job.cancelled:
                self._changed.notify_all()
                raise Cancelled
            self._began_s = time.monotonic()

    def _give_back(self, job: Job) -> None:
        with self._changed:
            assert self._began_s is not None
            self._share.charge(job.client, round(1000 * (time.monotonic() - self._began_s)))
            self._began_s = None
            self.calls += 1
            self._changed.notify_all()
        self._stepped()

    def _next(self) -> Job:
        return min(self._waiting, key=lambda job: self._share.turn(job.client))
