"""How many threads compute a step, where other processes want the cores too.

The threads of a step wait for each other after every operation. When one of them has to share its
core, all wait for as long as another process runs there. Steps are then tried with fewer threads,
and computed so while that is faster. Knows no rows, only how many tokens a step had and what it
took.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from statistics import median

MAX_TOKENS = 64  # of a step that counts; larger ones have all threads
_LOST_THREADS = 0.3  # that did not run, on average: a reason to try fewer
_NEWEST_WEIGHT = 0.25  # of the newest step in that average
_RECENT_STEPS, _MIN_RECENT = 8, 4  # that a trial is compared with
_TRIAL_STEPS = 4  # of the sizes of those. The first step does not count: a thread that has slept
_MAX_TRIAL_STEPS = 24  # is given its core at once
_MARGIN = 0.97  # of the time that is left where another count is kept
_SLOW = 1.25  # two steps of a trial that take so much longer end it
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.25, 8.0  # before what was not faster is tried again


class _Trial:
    """Steps with another count of threads, compared with the last ones before."""

    def __init__(self, count: int, recent: Iterable[tuple[int, float]]) -> None:
        """recent: tokens and seconds of steps."""
        self.count = count
        self._steps = 0
        self._ratios: list[float] = []
        sizes: dict[int, list[float]] = {}
        for tokens, seconds in recent:
            sizes.setdefault(tokens, []).append(seconds)
        self._usual_s = {tokens: median(times) for tokens, times in sizes.items()}

    def observe(self, tokens: int, seconds: float) -> bool | None:
        """Whether this count is faster, once that is known."""
        self._steps += 1
        if self._steps > 1 and tokens in self._usual_s:
            self._ratios.append(seconds / self._usual_s[tokens])
        ratios = self._ratios
        if len(ratios) == _TRIAL_STEPS:
            return median(ratios) < _MARGIN
        slow = len(ratios) >= 2 and min(ratios) > _SLOW
        return False if slow or self._steps == _MAX_TRIAL_STEPS else None


class _Direction:
    """Fewer threads or more: what is tried next, and when. What was not faster is tried again after
    ever longer pauses, with ever larger differences: where three cores are taken, one thread less
    changes nothing."""

    def __init__(self) -> None:
        self.next_s = -math.inf
        self.difference = 1
        self._pause_s = _MIN_PAUSE_S

    def failed(self, now_s: float, max_difference: int) -> None:
        self.next_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, _MAX_PAUSE_S)
        self.difference = 1 if 2 * self.difference > max_difference else 2 * self.difference

    def reset(self, next_s: float) -> None:
        self.next_s, self.difference, self._pause_s = next_s, 1, _MIN_PAUSE_S


class ThreadCount:
    """The number of threads for the next step, at most max_threads."""

    def __init__(self, max_threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_threads = max_threads
        self._usual = max_threads  # outside of trials
        self._lost = 0.0
        self._recent: deque[tuple[int, float]] = deque(maxlen=_RECENT_STEPS)
        self._trial: _Trial | None = None
        self._clock = clock
        self._fewer, self._more = _Direction(), _Direction()

    def threads(self, tokens: int) -> int:
        """For a step of so many tokens, which is the next one."""
        if tokens > MAX_TOKENS:
            return self._max_threads
        return self._usual if self._trial is None else self._trial.count

    def observe(self, tokens: int, seconds: float, processor_s: float) -> None:
        """The step took so long, and all its threads together so much of the processors."""
        if tokens > MAX_TOKENS:
            self._recent.clear()  # a prompt: those after it have more to read, or less
        elif self._trial is not None:
            faster = self._trial.observe(tokens, seconds)
            if faster is not None:
                self._end(self._trial.count, faster)
        else:
            lost = self._usual - processor_s / max(seconds, 1e-9)
            self._lost += _NEWEST_WEIGHT * (lost - self._lost)
            self._recent.append((tokens, seconds))
            if len(self._recent) >= _MIN_RECENT:
                self._begin()

    def _begin(self) -> None:
        """A trial, where it is time for one."""
        now_s, usual = self._clock(), self._usual
        if usual < self._max_threads and now_s >= self._more.next_s:
            self._trial = _Trial(usual + self._more.difference, self._recent)
        elif usual > 1 and self._lost > _LOST_THREADS and now_s >= self._fewer.next_s:
            self._trial = _Trial(usual - self._fewer.difference, self._recent)

    def _end(self, count: int, faster: bool) -> None:
        now_s, fewer = self._clock(), count < self._usual
        direction, opposite = (self._fewer, self._more) if fewer else (self._more, self._fewer)
        if faster:
            self._usual, self._lost = count, 0.0
            self._recent.clear()
            direction.reset(now_s)
            opposite.reset(now_s + _MIN_PAUSE_S)
        else:
            direction.failed(now_s, self._usual - 1 if fewer else self._max_threads - self._usual)
        self._trial = None
