"""Which tokens the next step computes.

Every step runs all decoding sequences, one token each, and gives the rest of its token budget to
prompts: the running ones first, then new ones from the queue, by priority and then by arrival.
The scheduler owns the queues, the ids, the pool's ledger and the prefix cache, and tells the
backend to share, trim and release. It knows nothing of text or sampling.

When the pool is short, finished sequences go first, the least recently used before the others;
then the running sequence that is last in order gives up its cells, returns to the queue and is
computed again later. A sequence that is admitted has room for its whole prompt. Finished
sequences that leave the pool are copied into the swap where that pays, and come back from there.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

from runner.backends.backend import Backend, Row
from runner.engine.pacer import Pacer
from runner.engine.pool import Pool
from runner.engine.prefix_cache import (
    FinishedSequence,
    PrefixCache,
    PrefixMatch,
    PrefixSharing,
    PrefixSource,
)
from runner.engine.sequence import Sequence
from runner.engine.speculation import Speculation
from runner.engine.swap import SwappedSequence, SwapSpace

HOLD_TOKENS = 32  # a prefix in progress is worth waiting for when it saves this many
RESTORE_TOKENS = 16  # a copy in the swap is restored when it gives this many more
RESERVE_TOKENS = 16  # room that admission leaves to each running sequence to grow


@dataclass(frozen=True, slots=True)
class Step:
    """The work of one step: rows of the decoding sequences, then of the prompts' chunks."""

    rows: list[Row]
    decoding: list[Sequence]
    chunks: list[tuple[Sequence, int]]  # with the number of tokens
    drafted: int = 0  # tokens in the drafts of decoding

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens in the step."""
        return sum(count for _, count in self.chunks)


def _order(sequence: Sequence) -> tuple[int, int]:
    return sequence.order


class Scheduler:
    """The queues. Between schedule() and advance() of a step nothing else may be called."""

    def __init__(
        self,
        backend: Backend,
        pacer: Pacer,
        max_running: int,
        idle_tokens: int | None = None,
        swap_bytes: int = 0,
        speculation: Speculation | None = None,
    ) -> None:
        """idle_tokens: most tokens of finished sequences to keep in the pool; None: the whole
        pool. With a swap they may be more for the steps that it takes to copy them. swap_bytes:
        most memory for copies of finished sequences. speculation: for a backend that takes
        drafts."""
        capacity = backend.capacity
        self._backend = backend
        self._pacer = pacer
        self._batch_tokens = capacity.batch_tokens
        self._score_tokens = capacity.score_tokens
        self._max_running = min(max_running, capacity.max_sequences, capacity.batch_tokens)
        self._idle_tokens = capacity.pool_tokens if idle_tokens is None else idle_tokens
        self._partial = capacity.partial_share
        self._free_slots = list(range(capacity.max_sequences - 1, -1, -1))
        self.pool = Pool(capacity.pool_tokens, capacity.block_size)
        sharing = PrefixSharing(capacity.partial_share, capacity.block_size)
        self.cache = PrefixCache(sharing)
        self.swap = SwapSpace(backend, sharing, swap_bytes, lambda: pacer.prefill_token_s)
        self._speculation = speculation
        self._draft_tokens = capacity.draft_tokens
        self._reserved = 0  # cells that the rows chosen for this step take
        self.waiting: list[Sequence] = []
        self.prefilling: list[Sequence] = []
        self.decoding: list[Sequence] = []
        self.preemptions = 0
        self.failed: list[tuple[Sequence, Exception]] = []  # no sampler could be made for them

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self.prefilling) + len(self.decoding)

    @property
    def untidy(self) -> bool:
        """True when more finished sequences are in the pool than shall be: tidy has work."""
        return self.pool.idle > self._idle_tokens

    def tidy(self) -> None:
        """Move finished sequences out of the pool, as many as a step may."""
        self.swap.begin_step()
        self._evict_idle()

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        insort(self.waiting, sequence, key=_order)

    def drop(self, sequence: Sequence) -> None:
        """Take a sequence out: it is finished or cancelled. What it computed stays as cache."""
        if sequence.slot is None:
            del self.waiting[self._waiting_index(sequence)]
            return
        (self.prefilling if sequence in self.prefilling else self.decoding).remove(sequence)
        self._retire(sequence)

    def discard(self, sequence: Sequence) -> None:
        """Take out a running sequence whose tokens in the cache cannot be trusted."""
        slot = sequence.slot
        assert slot is not None
        (self.prefilling if sequence in self.prefilling else self.decoding).remove(sequence)
        sequence.slot, sequence.computed = None, 0
        self._release(slot)

    def drop_all(self) -> None:
        """Take out all running sequences and forget the cache: the backend was reset."""
        for sequence in (*self.decoding, *self.prefilling):
            sequence.slot, sequence.computed = None, 0
        self.decoding.clear()
        self.prefilling.clear()
        self.pool.clear()
        self.cache.clear()
        self.swap.clear()
        self._free_slots = list(range(self._backend.capacity.max_sequences - 1, -1, -1))

    def schedule(self) -> Step:
        """The next step; its rows are empty when there is nothing to compute."""
        self.tidy()
        self._give_way()
        self._make_room_to_decode()
        decoding = list(self.decoding)
        rows = [sequence.row for sequence in decoding]
        drafted = self._drafts(decoding)
        chunks: list[tuple[Sequence, int]] = []
        if self.prefilling or self.waiting:
            most = self._batch_tokens - len(decoding) - drafted
            budget = self._pacer.prefill_budget(most, len(decoding))
            chunks = self._prompts(budget, len(decoding) + drafted)
            rows += [sequence.chunk(count) for sequence, count in chunks]
        return Step(rows, decoding, chunks, drafted)

    def advance(self, step: Step) -> None:
        """The step's tokens are in the backend's cache now, without those of the drafts."""
        for sequence in step.decoding:
            sequence.computed += 1
        self.pool.grow(row.sequence for row in step.rows[: len(step.decoding)])
        for sequence, count in step.chunks:
            sequence.computed += count
            assert sequence.slot is not None
            self.pool.append(sequence.slot, count)

    def confirm(self, sequence: Sequence, count: int) -> None:
        """So many tokens of the sequence's draft are in the backend's cache too."""
        assert sequence.slot is not None
        sequence.computed += count
        self.pool.append(sequence.slot, count)

    def cut(self, sequence: Sequence, count: int) -> None:
        """The last count tokens in the cache came after the sequence's end."""
        assert sequence.slot is not None
        sequence.computed -= count
        self._backend.trim(sequence.slot, sequence.computed)
        self.pool.trim(sequence.slot, sequence.computed)

    def decode(self, sequence: Sequence) -> None:
        """The prompt of the sequence is computed and a token sampled: it decodes from now on."""
        self.prefilling.remove(sequence)
        self.decoding.append(sequence)

    def relieve(self) -> bool:
        """The backend had no room where the ledger saw some: evict or preempt. False when
        nothing is left to take."""
        if self._evict_oldest():
            return True
        if self.running < 2:
            return False
        self._preempt(self._last_in_order())
        return True

    def _waiting_index(self, sequence: Sequence) -> int:
        index = bisect_left(self.waiting, sequence.order, key=_order)
        assert self.waiting[index] is sequence, f"{sequence.id} is not in the queue"
        return index

    def _give_way(self) -> None:
        """Put running sequences back into the queue for waiting ones of a lower priority number,
        where ids or the pool are short. What they computed stays as cache while it can."""
        admitted = 0
        for sequence in list(self.waiting):
            if not self.running or self._last_in_order().priority <= sequence.priority:
                return
            if self._held(sequence):
                continue
            admitted += 1
            while self.running and self._in_the_way(sequence, admitted):
                last = self._last_in_order()
                self.drop(last)
                self._requeue(last)

    def _in_the_way(self, sequence: Sequence, admitted: int) -> bool:
        """Whether the last running sequence keeps a more urgent one waiting, which is the
        so-manieth to be admitted."""
        if self._last_in_order().priority <= sequence.priority:
            return False
        if self.running + admitted > self._max_running:
            return True
        return not self._fits(sequence, self.cache.longest(sequence.tokens, sequence.salt))

    def _make_room_to_decode(self) -> None:
        while self.pool.free < len(self.decoding):
            if not self._evict_oldest():
                self._preempt(self._last_in_order())

    def _drafts(self, decoding: list[Sequence]) -> int:
        """Let speculation use what room there is. Returns the number of tokens proposed."""
        if self._speculation is None or not decoding:
            return 0
        taken = len(decoding)
        room = min(self._draft_tokens, self._batch_tokens - taken, self.pool.free - taken)
        return self._speculation.propose(decoding, room)

    def _prompts(self, budget: int, reserved: int) -> list[tuple[Sequence, int]]:
        """Chunks within budget, leaving reserved cells to the decoding sequences."""
        chunks: list[tuple[Sequence, int]] = []
        self._reserved = reserved
        scored, left_over = self._score_tokens, budget - self._pacer.enough_prefill()
        for sequence in self._candidates():
            room = self.pool.free + self.pool.idle - self._reserved
            count = min(budget, sequence.pending, room)
            if sequence.images is not None and count > 0:
                start, most = sequence.computed, min(budget, sequence.pending)
                count = sequence.images.portion(start, most, room, alone=not chunks)
            if count <= 0:
                break
            if sequence.unscored:
                count = min(count, scored)
                if count == 0:
                    continue
                scored -= count
            self._reserved += count
            self._evict_to(self._reserved)
            chunks.append((sequence, count))
            budget -= count
            if budget <= 0 or (count == sequence.pending and budget <= left_over):
                break
        if not chunks and not self.decoding and self.running > 1:
            self._preempt(self._last_in_order())
            return self._prompts(budget, reserved)
        return chunks

    def _candidates(self) -> Iterator[Sequence]:
        """Running prompts, then queued ones, each admitted only when it is asked for; but queued
        ones before running ones of a higher priority number."""
        if self.prefilling and self.waiting:
            first = self.waiting[0].priority
            later = [sequence for sequence in self.prefilling if sequence.priority > first]
            yield from self.prefilling[: len(self.prefilling) - len(later)]
            if later:
                yield from self._admitted(later[0].priority)
                yield from later
        else:
            yield from list(self.prefilling)
        yield from self._admitted()

    def _admitted(self, before: int | None = None) -> Iterator[Sequence]:
        """Queued sequences that find room; before: those of a lower priority number only."""
        index = 0
        while index < len(self.waiting) and self.running < self._max_running:
            sequence = self.waiting[index]
            if before is not None and sequence.priority >= before:
                return
            if self._held(sequence):
                index += 1
                continue
            match = self._match(sequence)
            if not sequence.unscored and self._hold(sequence, 0 if match is None else match.length):
                index += 1
                continue
            if not self._fits(sequence, match):
                return
            del self.waiting[index]
            if self._prepare(sequence):
                self._admit(sequence, match)
                yield sequence

    def _match(self, sequence: Sequence) -> PrefixMatch | None:
        """Where to begin: in the pool, or with a copy if that gives more and has room."""
        if sequence.unscored:
            return None
        resident = self.cache.longest(sequence.tokens, sequence.salt)
        swapped = self.swap.longest(sequence.tokens, sequence.salt)
        least = RESTORE_TOKENS + (0 if resident is None else resident.length)
        if swapped is None or swapped.length < least or not self._fits(sequence, swapped):
            return resident
        return swapped

    def _held(self, sequence: Sequence) -> bool:
        source = sequence.held_by
        if source is None:
            return False
        if source.slot is not None and source.computed < sequence.held_until:
            return True
        sequence.held_by = None
        return False

    def _hold(self, sequence: Sequence, available: int) -> bool:
        """Let the sequence wait for a prefix that a running one is computing, if that is worth
        it."""
        ahead = self.cache.ahead(sequence.tokens, sequence.salt)
        if ahead is None or ahead.length < available + HOLD_TOKENS:
            return False
        assert isinstance(ahead.source, Sequence)
        sequence.held_by, sequence.held_until = ahead.source, ahead.length
        return True

    def _fits(self, sequence: Sequence, match: PrefixMatch | None) -> bool:
        if not self.running:
            return True
        need = len(sequence.tokens) + 1
        if match is not None and match.source.slot is not None:
            need -= self.pool.live_prefix(match.source.slot, match.length)
        elif match is not None:
            need = max(need, match.source.computed)  # a copy comes back as a whole
        promised = sum(other.pending + 1 for other in self.prefilling)
        reserve = RESERVE_TOKENS * self.running
        return self.pool.live + promised + reserve + need <= self.pool.capacity_tokens

    def _prepare(self, sequence: Sequence) -> bool:
        """Make the sampler, which outlives preemptions. False: the request has failed."""
        try:
            if sequence.sampler is None:
                sequence.sampler = self._backend.create_sampler(sequence.params)
                sequence.sampler.accept(sequence.penalty_window())
        except Exception as error:
            self.failed.append((sequence, error))
            return False
        return True

    def _admit(self, sequence: Sequence, match: PrefixMatch | None) -> None:
        if match is not None and isinstance(match.source, SwappedSequence):
            match = self._restore(sequence, match.source, match)
        else:
            match = self._claim(sequence, match)
        assert sequence.slot is not None
        sequence.computed = 0 if match is None else match.length
        sequence.least = 0 if match is None else match.source.least
        if sequence.cached is None:
            sequence.cached = sequence.computed
        self.cache.add(sequence.slot, sequence)
        insort(self.prefilling, sequence, key=_order)
        self._evict_idle()

    def _claim(self, sequence: Sequence, match: PrefixMatch | None) -> PrefixMatch | None:
        """Give the sequence an id and the match's tokens. A finished source that it continues
        is taken over; so is the last one left when there is no other id."""
        source = None if match is None else match.source
        whole = source is not None and match is not None and match.length == source.computed
        if isinstance(source, FinishedSequence) and whole and self._partial:
            return self._take_over(sequence, source, match)
        if not self._free_slots and not self._evict_oldest(source):
            assert isinstance(source, FinishedSequence), "running sequences hold all ids"
            return self._take_over(sequence, source, match)
        sequence.slot = self._free_slots.pop()
        self.pool.open(sequence.slot)
        if match is not None and source is not None:
            assert source.slot is not None
            self._backend.share(source.slot, sequence.slot, match.length)
            self.pool.share(source.slot, sequence.slot, match.length)
        return match

    def _restore(
        self, sequence: Sequence, copy: SwappedSequence, match: PrefixMatch
    ) -> PrefixMatch | None:
        """Give the sequence an id and the tokens of a copy. Where that fails it begins as if
        there were none."""
        needed = self._reserved + copy.computed
        self._evict_to(needed)
        if not self._free_slots:
            self._evict_oldest()
        slot = self._free_slots[-1]
        if self.pool.free < needed or not self.swap.restore(copy, slot):
            return self._claim(sequence, self.cache.longest(sequence.tokens, sequence.salt))
        sequence.slot = self._free_slots.pop()
        self.pool.open(slot)
        merged = self._merge(sequence)
        self.pool.append(slot, copy.computed - merged)
        if match.length < copy.computed:
            self._backend.trim(slot, match.length)
            self.pool.trim(slot, match.length)
        self.swap.use(copy, match.length)
        return match

    def _merge(self, sequence: Sequence) -> int:
        """Share with the pool what of a restored sequence is there already: it would be attended
        over twice. Returns the number of tokens."""
        resident = self.cache.longest(sequence.tokens, sequence.salt) if self._partial else None
        if resident is None:
            return 0
        source, target = resident.source.slot, sequence.slot
        assert source is not None
        assert target is not None
        self._backend.merge(source, target, resident.length)
        self.pool.share(source, target, resident.length)
        return resident.length

    def _take_over(
        self, sequence: Sequence, source: FinishedSequence, match: PrefixMatch | None
    ) -> PrefixMatch | None:
        slot = source.slot
        assert slot is not None
        length = 0 if match is None else match.length
        if length < source.computed:
            self._copy(source, length)
        self.cache.remove(slot)
        source.slot = None
        sequence.slot = slot
        self.pool.revive(slot)
        if length < source.computed and not self._backend.trim(slot, length):
            self._backend.release(slot)
            match, length = None, 0
        self.pool.trim(slot, length)
        return match

    def _retire(self, sequence: Sequence) -> None:
        """A running sequence becomes a finished one in the cache."""
        slot = sequence.slot
        assert slot is not None
        self.pool.retire(slot)
        for redundant in self.cache.finish(slot):
            self._release(redundant)
        sequence.slot = None
        self._evict_idle()

    def _last_in_order(self) -> Sequence:
        return max([*self.prefilling, *self.decoding], key=_order)

    def _preempt(self, sequence: Sequence) -> None:
        self.discard(sequence)
        self._requeue(sequence)

    def _requeue(self, sequence: Sequence) -> None:
        sequence.computed = 0
        self.add(sequence)
        self.preemptions += 1

    def _evict_to(self, free: int) -> None:
        while self.pool.free < free and self._evict_oldest():
            pass

    def _evict_idle(self) -> None:
        while self.untidy and self.swap.ready and self._evict_oldest():
            pass

    def _evict_oldest(self, besides: PrefixSource | None = None) -> bool:
        entry = self.cache.oldest(besides)
        if entry is None or entry.slot is None:
            return False
        self._copy(entry, 0)
        self._release(entry.slot)
        entry.slot = None
        return True

    def _copy(self, entry: FinishedSequence, remaining: int) -> None:
        """Copy an entry into the swap, if that pays, before all but its first remaining tokens
        go."""
        if self.swap.budget_bytes:
            self.swap.copy(entry, max(remaining, self.cache.elsewhere(entry)))

    def _release(self, slot: int) -> None:
        self.cache.remove(slot)
        self._backend.release(slot)
        self.pool.release(slot)
        self._free_slots.append(slot)
