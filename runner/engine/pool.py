"""The ledger of the cache: how many tokens are in it, and who holds them.

The backend owns the cells; this module only counts them, exactly, so that the scheduler never
asks for more than there are. The tokens of a sequence are a path of segments from the root of a
tree. Sequences that share a prefix share its segments, so a shared prefix counts once. It knows
no token ids, only lengths.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class _Segment:
    """A run of tokens. holders: sequences whose path goes through it; live: those of them that
    run, the others being idle cache entries."""

    parent: _Segment | None
    length: int
    holders: int
    live: int


@dataclass(slots=True, eq=False)
class _Path:
    """A sequence's tokens: its last segment (None while it has no tokens) and their number."""

    tail: _Segment | None
    length: int
    live: bool


class Pool:
    """Counts of the cells in use. Sequences are named by their backend id."""

    def __init__(self, capacity_tokens: int, block_size: int = 1) -> None:
        self.capacity_tokens = capacity_tokens
        self.used = 0  # cells held by any sequence
        self.live = 0  # of them, cells held by a running sequence
        self._block_size = block_size
        self._paths: dict[int, _Path] = {}

    @property
    def free(self) -> int:
        """Cells that no sequence holds."""
        return self.capacity_tokens - self.used

    @property
    def idle(self) -> int:
        """Cells that only idle sequences hold: what evicting all of them would free."""
        return self.used - self.live

    def sequences(self) -> set[int]:
        """The ids in the ledger."""
        return set(self._paths)

    def length(self, sequence: int) -> int:
        """Tokens of the sequence."""
        return self._paths[sequence].length

    def open(self, sequence: int) -> None:
        """Begin a running sequence without tokens. Its id must not be in use."""
        assert sequence not in self._paths, f"sequence {sequence} is open"
        self._paths[sequence] = _Path(None, 0, live=True)

    def append(self, sequence: int, count: int) -> None:
        """count tokens more at the end of a running sequence."""
        path = self._paths[sequence]
        assert path.live, f"sequence {sequence} is idle"
        tail = path.tail
        path.length += count
        if tail is None or tail.holders > 1:
            path.tail = _Segment(tail, 0, 1, 1)
            self._resize(path.tail, count)
        else:
            self._resize(tail, tail.length + count)

    def grow(self, sequences: Iterable[int]) -> None:
        """One token more for each of these running sequences: append without the calls, since
        this happens at every step."""
        paths, exact, grown = self._paths, self._block_size == 1, 0
        for sequence in sequences:
            path = paths[sequence]
            tail = path.tail
            if exact and tail is not None and tail.holders == 1:
                tail.length += 1
                path.length += 1
                grown += 1
            else:
                self.append(sequence, 1)
        self.used += grown
        self.live += grown

    def share(self, source: int, target: int, length: int) -> None:
        """target, open and empty, begins with source's first length tokens."""
        origin, path = self._paths[source], self._paths[target]
        assert path.length == 0, f"sequence {target} has tokens"
        assert 0 <= length <= origin.length, f"{length} of {origin.length} tokens"
        path.tail = self._boundary(origin, length)
        path.length = length
        segment = path.tail
        while segment is not None:
            segment.holders += 1
            self._add_live(segment, 1)
            segment = segment.parent

    def trim(self, sequence: int, length: int) -> None:
        """Keep the first length tokens only."""
        path = self._paths[sequence]
        assert 0 <= length <= path.length, f"{length} of {path.length} tokens"
        keep = self._boundary(path, length)
        segment = path.tail
        while segment is not keep:
            assert segment is not None
            self._drop(segment, path.live)
            segment = segment.parent
        path.tail, path.length = keep, length

    def release(self, sequence: int) -> None:
        """Forget the sequence. What it alone held becomes free."""
        self.trim(sequence, 0)
        del self._paths[sequence]

    def retire(self, sequence: int) -> None:
        """A running sequence becomes an idle one."""
        self._turn(sequence, live=False)

    def revive(self, sequence: int) -> None:
        """An idle sequence becomes a running one."""
        self._turn(sequence, live=True)

    def live_prefix(self, sequence: int, length: int) -> int:
        """How many of the sequence's first length tokens a running sequence holds: sharing them
        takes nothing from the idle cells."""
        path = self._paths[sequence]
        end, segment = path.length, path.tail
        while segment is not None and segment.live == 0:
            end -= segment.length
            segment = segment.parent
        return min(end, length)

    def clear(self) -> None:
        """Forget all sequences."""
        self._paths.clear()
        self.used = self.live = 0

    def _turn(self, sequence: int, live: bool) -> None:
        path = self._paths[sequence]
        assert path.live is not live, f"sequence {sequence} is {'live' if live else 'idle'} already"
        path.live = live
        segment = path.tail
        while segment is not None:
            self._add_live(segment, 1 if live else -1)
            segment = segment.parent

    def _boundary(self, path: _Path, length: int) -> _Segment | None:
        """The segment of path that ends at length, split off where necessary."""
        end, segment = path.length, path.tail
        while segment is not None and end - segment.length >= length:
            end -= segment.length
            segment = segment.parent
        if segment is None or end == length:
            return segment
        return self._split(segment, segment.length - (end - length))

    def _split(self, segment: _Segment, length: int) -> _Segment:
        """Cut off the first length tokens of segment as its parent, for all its holders."""
        upper = _Segment(segment.parent, 0, segment.holders, segment.live)
        self._resize(segment, segment.length - length)
        self._resize(upper, length)
        segment.parent = upper
        return upper

    def _cells(self, length: int) -> int:
        return -(-length // self._block_size) * self._block_size

    def _resize(self, segment: _Segment, length: int) -> None:
        change = self._cells(length) - self._cells(segment.length)
        segment.length = length
        self.used += change
        if segment.live:
            self.live += change

    def _add_live(self, segment: _Segment, change: int) -> None:
        was = segment.live > 0
        segment.live += change
        now = segment.live > 0
        if was is not now:
            self.live += self._cells(segment.length) * (1 if now else -1)

    def _drop(self, segment: _Segment, live: bool) -> None:
        if live:
            self._add_live(segment, -1)
        segment.holders -= 1
        if segment.holders == 0:
            self.used -= self._cells(segment.length)
