"""Finds the chunks of a store that are nearest to a query: filters on file attributes, and the
similarity of embeddings.

Every vector of a store is compared, in steps: exact, and quick enough for the stores that there may
be. sqlite-vec compares all as well, and many Pythons are built without loading extensions.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

from runner.errors import InvalidRequest

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "eq": eq,
    "ne": ne,
    "gt": gt,
    "gte": ge,
    "lt": lt,
    "lte": le,
    "in": lambda value, given: value in given,
    "nin": lambda value, given: value not in given,
}
_LISTS: Final = ("in", "nin")
_MAX_DEPTH: Final = 4
_MAX_CONDITIONS: Final = 64
_MAX_VALUES: Final = 256  # of one condition: each file of a store is compared with all

Attributes = Mapping[str, Any]


class Filter:
    """A condition on the attributes of files."""

    def __init__(self, given: Mapping[str, Any] | None) -> None:
        """given: as clients write it; None: all files. Raises InvalidRequest."""
        self._count = 0
        self._given = given
        if given is not None:
            self._check(given, 0)

    def takes(self, attributes: Attributes) -> bool:
        """Whether a file with these attributes is meant."""
        return self._given is None or _takes(self._given, attributes)

    def _check(self, given: Any, depth: int) -> None:
        self._count += 1
        kind = given.get("type") if isinstance(given, Mapping) else None
        if depth > _MAX_DEPTH or self._count > _MAX_CONDITIONS:
            raise _invalid(f"more than {_MAX_CONDITIONS} conditions, or {_MAX_DEPTH} in each other")
        if kind in ("and", "or"):
            inner = given.get("filters")
            if not isinstance(inner, list) or not inner:
                raise _invalid(f"{kind} needs a list of filters")
            for each in inner:
                self._check(each, depth + 1)
        elif kind not in _COMPARISONS:
            known = ", ".join((*_COMPARISONS, "and", "or"))
            raise _invalid(f"type is {str(kind)[:40]!r}: expected one of {known}")
        elif not isinstance(given.get("key"), str):
            raise _invalid(f"{kind} needs a key")
        else:
            values = given.get("value")
            values = values if kind in _LISTS and isinstance(values, list) else [values]
            if len(values) > _MAX_VALUES:
                raise _invalid(f"{kind} has {len(values)} values; at most {_MAX_VALUES}")
            if not all(isinstance(value, str | int | float) for value in values):
                raise _invalid(f"{kind} needs a value: a text, a number, true or false")


def _takes(given: Mapping[str, Any], attributes: Attributes) -> bool:
    kind = given["type"]
    if kind in ("and", "or"):
        found = (_takes(each, attributes) for each in given["filters"])
        return all(found) if kind == "and" else any(found)
    value, wanted = attributes.get(given["key"]), given["value"]
    if kind in _LISTS and not isinstance(wanted, list):
        wanted = [wanted]
    try:
        return (value is not None or kind in ("ne", "nin")) and _COMPARISONS[kind](value, wanted)
    except TypeError:  # a text and a number have no order
        return False


def _invalid(reason: str) -> InvalidRequest:
    return InvalidRequest(f"filters: {reason}", param="filters")


def as_vector(values: Sequence[float]) -> bytes:
    """A vector of length 1 to keep: 32-bit floats, little-endian."""
    import numpy as np

    vector = np.asarray(values, "<f4")
    return bytes((vector / (np.linalg.norm(vector) or 1.0)).astype("<f4").tobytes())


def nearest(
    batches: Iterable[Sequence[tuple[int, bytes]]], queries: Sequence[Sequence[float]], count: int
) -> list[tuple[float, int]]:
    """The scores (0 to 1) and numbers of the vectors nearest to any of queries, best first.
    batches: numbers with vectors of as_vector, of one length."""
    import numpy as np

    wanted = np.frombuffer(b"".join(map(as_vector, queries)), "<f4").reshape(len(queries), -1)
    best: list[tuple[float, int]] = []
    for batch in batches:
        vectors = np.frombuffer(b"".join(vector for _, vector in batch), "<f4")
        scores = (vectors.reshape(len(batch), -1) @ wanted.T).max(axis=1).clip(0.0, 1.0)
        found = zip(scores.tolist(), (number for number, _ in batch), strict=True)
        best = heapq.nlargest(count, [*best, *found])
    return best
