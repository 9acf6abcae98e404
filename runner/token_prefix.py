"""How much of two sequences of tokens is the same."""

from __future__ import annotations

from array import array


def common_prefix(left: array[int], right: array[int], limit: int) -> int:
    """How many of the first limit tokens are equal. Slices of arrays are compared, in C, rather
    than tokens in Python."""
    limit = min(limit, len(left), len(right))
    done, size = 0, 32
    while done < limit:
        end = min(done + size, limit)
        if left[done:end] == right[done:end]:
            done, size = end, size * 2
        elif size > 1 and end - done > 1:
            size = (end - done) // 2
        else:
            break
    return done
