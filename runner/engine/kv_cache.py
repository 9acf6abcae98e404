"""Who has which cells of the backend's cache.

Owns the sequence ids, the ledger of cells, the prefixes of running and finished sequences and the
copies of those that left, and tells the backend to share, trim and release. Knows no queues.

When cells are short, finished sequences go first, the least recently used before the others. What
leaves is copied into the swap where that pays, and comes back from there.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator

from runner.backends.backend import Backend
from runner.engine.pool import Pool
from runner.engine.pool_growth import PoolGrowth
from runner.engine.prefix_cache import (
    FinishedSequence,
    PrefixCache,
    PrefixMatch,
    PrefixSharing,
    PrefixSource,
    SlotSource,
    common_tokens,
    is_superseded,
)
from runner.engine.running_sequence import RunningSequence
from runner.engine.sequence import Sequence
from runner.engine.swap import SwappedSequence, SwapSpace
from runner.types import Adapters

Match = PrefixMatch[SlotSource] | PrefixMatch[SwappedSequence]


class KvCache:
    """The sequences in the cache of one backend."""

    def __init__(
        self,
        backend: Backend,
        idle_tokens: int | None,
        swap_bytes: int,
        token_s: Callable[[], float | None],
    ) -> None:
        """idle_tokens: the limit of tokens of finished sequences; None: the whole pool. With a
        swap they may be more for the steps that it takes to copy them. swap_bytes: the limit of
        memory for copies. token_s: see SwapSpace."""
        capacity = backend.capacity
        self.sharing = sharing = PrefixSharing(capacity.partial_share, capacity.block_size)
        self.pool = Pool(capacity.pool_tokens, capacity.block_size)
        self.prefixes = PrefixCache(sharing, backend.min_share if capacity.window else None)
        self.swap = SwapSpace(backend, sharing, swap_bytes, token_s)
        self._backend = backend
        self._partial = capacity.partial_share
        self.growth: PoolGrowth | None = None  # None: the pool has its size for good
        self._max_idle = idle_tokens
        self._free_slots = _all_slots(backend)

    @property
    def max_tokens(self) -> int:
        """The size that the pool may grow to."""
        pool_tokens = self.pool.capacity_tokens
        return pool_tokens if self.growth is None else max(pool_tokens, self.growth.limit_tokens)

    @property
    def over_idle_limit(self) -> bool:
        """True when more finished sequences are in the pool than shall be."""
        return self._max_idle is not None and self.pool.idle > self._max_idle

    def grow(self, tokens: int) -> bool:
        """Let the pool have so many tokens, if it may. Returns whether it has them. Raises
        BackendError when all is lost."""
        if self.growth is not None and tokens > self.pool.capacity_tokens:
            self.growth.grow(tokens)
            self.pool.capacity_tokens = self._backend.capacity.pool_tokens
        return tokens <= self.pool.capacity_tokens

    def evict_idle(self) -> None:
        """Move finished sequences beyond the limit out of the pool, as many as a step may."""
        while self.over_idle_limit and self.swap.ready and self.evict_oldest():
            pass

    def evict_to(self, free: int) -> None:
        """Evict finished sequences until so many cells are free or none is left."""
        while self.pool.free < free and self.evict_oldest():
            pass

    def evict_oldest(self, besides: SlotSource | None = None) -> bool:
        """Evict the finished sequence that was used least recently. False: there is none."""
        entry = self.prefixes.oldest(besides)
        if entry is None:
            return False
        self._copy(entry, 0)
        self._release(entry.slot)
        return True

    def allocate(self, sequence: Sequence, match: Match | None, reserved: int) -> RunningSequence:
        """Let the sequence run, with an id and the tokens of match, or fewer where the backend
        refuses. reserved: cells that others of the same step take."""
        if match is None:
            running = self._start(sequence, None)
        elif isinstance(match.source, SwappedSequence):
            running = self._restore(sequence, match.source, match.length, reserved)
        else:
            running = self._start(sequence, PrefixMatch(match.source, match.length))
        self.prefixes.add(running)
        self.evict_idle()
        return running

    def append(self, running: RunningSequence, count: int) -> None:
        """The next count tokens are in the backend's cache now."""
        running.computed += count
        self.pool.append(running.slot, count)

    def trim(self, running: RunningSequence, count: int) -> None:
        """The last count tokens leave, and all others where the backend has no way back."""
        running.computed -= count
        if not self._backend.trim(running.slot, running.computed):
            self._backend.release(running.slot)
            running.computed = 0
        self.pool.trim(running.slot, running.computed)

    def retire(self, running: RunningSequence) -> None:
        """The sequence runs no longer; its tokens stay for others while they may."""
        self.pool.retire(running.slot)
        for redundant in self.prefixes.finish(running.slot):
            self._release(redundant)
        self.evict_idle()

    def keep_state(self, running: RunningSequence) -> None:
        """Keep what is computed of a running sequence as if it had finished, if there is an id for
        it: from a recurrent state, and from an attention window, there is no way back."""
        if not self._free_slots and not self.evict_oldest():
            return
        slot, computed = self._free_slots.pop(), running.computed
        self._backend.share(running.slot, slot, computed)
        self.pool.open(slot)
        self.pool.share(running.slot, slot, computed)
        self.pool.retire(slot)
        self.prefixes.keep(running, slot)

    def discard(self, running: RunningSequence) -> None:
        """The sequence runs no longer, and nothing of it stays."""
        self._release(running.slot)

    def idle(self) -> Iterator[FinishedSequence | SwappedSequence]:
        """The finished sequences, in the pool and copied out of it."""
        yield from self.prefixes.finished()
        yield from self.swap.entries()

    def known(self, tokens: array[int], salt: str | None, adapters: Adapters) -> int:
        """How many of the first tokens are here, in the pool or copied out of it. From any thread:
        see PrefixCache.known."""
        copies, usable = self.swap.entries(), self.sharing.usable
        copied = max((usable(copy, tokens, salt, adapters) for copy in copies), default=0)
        return max(copied, self.prefixes.known(tokens, salt, adapters))

    def common(self, tokens: array[int], salt: str | None, adapters: Adapters) -> int:
        """The longest beginning of tokens that some sequence has too, whether it can be had from
        there or not."""
        sources: list[PrefixSource] = [*self.prefixes.sources(), *self.swap.entries()]
        return max((common_tokens(each, tokens, salt, adapters) for each in sources), default=0)

    def drop(self, entry: FinishedSequence | SwappedSequence) -> None:
        """A finished sequence leaves, and nothing of it stays."""
        if isinstance(entry, SwappedSequence):
            self.swap.forget(entry)
        else:
            self._release(entry.slot)

    def clear(self) -> None:
        """Forget everything: the backend was reset."""
        self.pool.clear()
        self.prefixes.clear()
        self.swap.clear()
        self._free_slots = _all_slots(self._backend)

    def _start(self, sequence: Sequence, match: PrefixMatch[SlotSource] | None) -> RunningSequence:
        """A finished source that the sequence continues is taken over, with or without its answer;
        so is the last one left when there is no other id."""
        if match is not None and self.prefixes.has_lost(match):  # the cache has grown meanwhile
            match = self.prefixes.longest_match(*sequence.prefix)
        source = None if match is None else match.source
        if match is not None and isinstance(source, FinishedSequence):
            length, continued = match.length, match.length == source.computed
            continued |= is_superseded(source, length, sequence.salt)
            if (continued and self._partial) or not (self._free_slots or self.evict_oldest(source)):
                return self._take_over(sequence, source, length)
        elif not self._free_slots:
            evicted = self.evict_oldest()
            assert evicted, "running sequences hold all ids"
        slot = self._free_slots.pop()
        self.pool.open(slot)
        if match is None:
            return RunningSequence(sequence, slot)
        self._backend.share(match.source.slot, slot, match.length)
        self.pool.share(match.source.slot, slot, match.length)
        return RunningSequence(sequence, slot, match.length, match.source)

    def _take_over(
        self, sequence: Sequence, source: FinishedSequence, length: int
    ) -> RunningSequence:
        slot = source.slot
        if length < source.computed and not is_superseded(source, length, sequence.salt):
            self._copy(source, length)
        self.prefixes.remove(slot)
        self.pool.revive(slot)
        if length < source.computed and not self._backend.trim(slot, length):
            self._backend.release(slot)
            length = 0
        self.pool.trim(slot, length)
        return RunningSequence(sequence, slot, length, source)

    def _restore(
        self, sequence: Sequence, copy: SwappedSequence, length: int, reserved: int
    ) -> RunningSequence:
        """Begin with the tokens of a copy. Where that fails the sequence begins as if there were
        none."""
        needed = reserved + copy.computed
        self.evict_to(needed)
        if not self._free_slots:
            self.evict_oldest()
        slot = self._free_slots[-1]
        if self.pool.free < needed or not self.swap.restore(copy, slot):
            return self._start(sequence, self.prefixes.longest_match(*sequence.prefix))
        self._free_slots.pop()
        self.pool.open(slot)
        merged = self._merge(sequence, slot)
        self.pool.append(slot, copy.computed - merged)
        if length < copy.computed:
            self._backend.trim(slot, length)
            self.pool.trim(slot, length)
        self.swap.use(copy, length if self._partial else 0, sequence.salt)
        return RunningSequence(sequence, slot, length, copy)

    def _merge(self, sequence: Sequence, slot: int) -> int:
        """Share with the pool what of a restored sequence is there already: it would be attended
        over twice. Returns the number of tokens."""
        match = self.prefixes.longest_match(*sequence.prefix) if self._partial else None
        if match is None:
            return 0
        self._backend.merge(match.source.slot, slot, match.length)
        self.pool.share(match.source.slot, slot, match.length)
        return match.length

    def _copy(self, entry: FinishedSequence, remaining: int) -> None:
        """Copy an entry into the swap, if that pays, before all but its first remaining tokens
        go."""
        if self.swap.budget_bytes:
            self.swap.copy(entry, max(remaining, self.prefixes.elsewhere(entry)))

    def _release(self, slot: int) -> None:
        self.prefixes.remove(slot)
        self._backend.release(slot)
        self.pool.release(slot)
        self._free_slots.append(slot)


def _all_slots(backend: Backend) -> list[int]:
    return list(range(backend.capacity.max_sequences - 1, -1, -1))
