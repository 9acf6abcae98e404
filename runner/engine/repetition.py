"""Whether an answer only repeats itself.

Base models, and small ones at a low temperature, often end in a loop: once nothing but repetitions
is near, each token is followed by what followed it before. The rule is exact: the last tokens are
the same run, token for token, at least MIN_COUNT times and for the limit's number of tokens. Rows
of a table, cases of code and verses differ somewhere long before that; what is meant to repeat so
long (the zeros of an array: three tokens each, so that the default lets 340 pass) is rare, and the
limit can be raised or switched off.
"""

from __future__ import annotations

from array import array
from typing import Final

CHECK_TOKENS: Final = 32  # generated between two checks, which take 5 microseconds
MIN_COUNT: Final = 8
MAX_PERIOD: Final = 512  # tokens of the run that is repeated
_TAIL_TOKENS = 16  # looked for to find how long the run may be
_MAX_CANDIDATES = 16  # for its length


def repeats(tokens: array[int], limit: int) -> bool:
    """Whether tokens end in at least limit tokens of a run and its repetitions."""
    size = tokens.itemsize
    data = tokens[-max(limit, MIN_COUNT * MAX_PERIOD) :].tobytes()
    tail = data[-min(limit, _TAIL_TOKENS) * size :]
    end, low = len(data) - 1, max(0, len(data) - len(tail) - MAX_PERIOD * size)
    for _ in range(_MAX_CANDIDATES):
        at = data.rfind(tail, low, end)
        if at < 0:
            return False
        period = len(data) - len(tail) - at
        start = len(data) - max(limit * size, MIN_COUNT * period)
        if start >= 0 and not period % size and data[start + period :] == data[start:-period]:
            return True
        end = at + len(tail) - 1
    return False
