"""How often a model's worker has crashed of late, and how long to wait before the next start.

Knows nothing of processes. Times are seconds of the monotonic clock, given by the caller.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

WINDOW_S = 60.0
MAX_CRASHES = 3  # within the window; then no start until the first of them is out of it
_BACKOFF_S = (0.0, 0.0, 1.0)  # by the number of crashes in the window


@dataclass(slots=True)
class CrashHistory:
    """The crashes of one model's worker."""

    _times: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_CRASHES))

    def record(self, now_s: float) -> None:
        """A worker of this model has crashed."""
        self._times.append(now_s)

    def recent(self, now_s: float) -> int:
        """How many crashes the window holds, at most MAX_CRASHES."""
        return sum(now_s - then < WINDOW_S for then in self._times)

    def blocked_s(self, now_s: float) -> float | None:
        """Seconds until a start is allowed again; None when it is allowed now."""
        if self.recent(now_s) < MAX_CRASHES:
            return None
        return self._times[0] + WINDOW_S - now_s

    def backoff_s(self, now_s: float) -> float:
        """How long to wait before a start that is allowed."""
        return _BACKOFF_S[min(self.recent(now_s), len(_BACKOFF_S) - 1)]
