"""The sequences that wait for a place: each client's in its own order, clients by their turn.

Knows neither the batch nor the cache.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping

from runner.engine.fair_share import FairShare, Turn
from runner.engine.sequence import Sequence


def _order(sequence: Sequence) -> tuple[int, int, int]:
    return sequence.order


class WaitingQueue:
    """Sequences by client."""

    def __init__(self, share: FairShare) -> None:
        self._share = share
        self._queues: dict[str, list[Sequence]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __iter__(self) -> Iterator[Sequence]:
        for queue in self._queues.values():
            yield from queue

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        insort(self._queues.setdefault(sequence.client, []), sequence, key=_order)

    def remove(self, sequence: Sequence) -> None:
        """Take out a sequence, which must be here."""
        queue = self._queues[sequence.client]
        index = bisect_left(queue, sequence.order, key=_order)
        assert queue[index] is sequence, f"{sequence.id} is not in the queue"
        del queue[index]
        if not queue:
            del self._queues[sequence.client]

    def first(self, passed: Mapping[str, int]) -> Sequence | None:
        """Whose turn it is, when so many of the first of each client are passed over."""
        best: Sequence | None = None
        least: tuple[int, Turn, int] | None = None
        for client, queue in self._queues.items():
            at = passed.get(client, 0)
            if at < len(queue):
                priority, _, arrival = queue[at].order
                claim = (priority, self._share.turn(client, queue[at].output_tokens), arrival)
                if least is None or claim < least:
                    best, least = queue[at], claim
        return best
