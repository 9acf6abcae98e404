"""Whether the rows of a small step are computed together or one after the other.

llama.cpp has one kernel for a single column and others for several. On some processors and weight
types the latter need many columns to pay: on two Zen 5 cores a Q8_0 model of 0.6B took 19 ms for
one row, 56 for two, 117 for three and 79 for four. Which is faster is measured as the model runs.
Knows no rows, only how many they are and how long they took.
"""

from __future__ import annotations

MAX_ROWS = 7  # more are always computed together
REMEASURE_STEPS = 256  # after so many steps of one size the slower way is measured once more
MARGIN = 0.9  # one after the other must be this much faster: it reads the weights again each time
NEWEST_WEIGHT = 0.25  # of the newest time in the averages


class SmallBatchPolicy:
    """Averages of the time of single rows and of steps by their number of rows."""

    def __init__(self) -> None:
        self._alone_s: float | None = None
        self._together_s: dict[int, float] = {}
        self._steps: dict[int, int] = {}

    def separately(self, rows: int) -> bool:
        """True: compute the rows one after the other in this step. The first step of a size is
        computed together; the second one apart, if nothing is known of single rows."""
        together_s = self._together_s.get(rows)
        if not 2 <= rows <= MAX_ROWS or together_s is None:
            return False
        if self._alone_s is None:
            return True
        self._steps[rows] = step = self._steps.get(rows, 0) + 1
        faster = rows * self._alone_s < MARGIN * together_s
        return faster is not (step % REMEASURE_STEPS == 0)

    def record_together(self, rows: int, seconds: float) -> None:
        """A step of so many rows took so long."""
        if rows == 1:
            self._alone_s = _average(self._alone_s, seconds)
        elif rows <= MAX_ROWS:
            self._together_s[rows] = _average(self._together_s.get(rows), seconds)

    def record_separate(self, rows: int, seconds: float) -> None:
        """So many rows, one after the other, took so long in all."""
        self._alone_s = _average(self._alone_s, seconds / rows)


def _average(average_s: float | None, newest_s: float) -> float:
    return newest_s if average_s is None else average_s + NEWEST_WEIGHT * (newest_s - average_s)
