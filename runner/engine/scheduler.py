"""Which tokens the next step computes.

Every step runs all decoding sequences, one token each, and gives the rest of its token budget to
prompts: the running ones first, then new ones from the queue, by priority and then by arrival.
The scheduler owns the queues; the cells of the cache are kv_cache.py's. It knows nothing of text
or sampling.

When cells are short and no finished sequence is left to evict, the running sequence that is last
in order gives up its cells, returns to the queue and is computed again later. A sequence is
admitted when there is room for its whole prompt.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

from runner.backends.backend import Backend, Row
from runner.engine.kv_cache import KvCache, Match
from runner.engine.pacer import Pacer
from runner.engine.running_sequence import RunningSequence
from runner.engine.sequence import Sequence
from runner.engine.speculation import Speculation
from runner.engine.swap import SwappedSequence

HOLD_TOKENS = 32  # a prefix in progress is worth waiting for when it saves this many
RESTORE_TOKENS = 16  # a copy in the swap is restored when it gives this many more
RESERVE_TOKENS = 16  # room that admission leaves to each running sequence to grow


@dataclass(frozen=True, slots=True)
class ScheduledStep:
    """The work of one step: rows of the decoding sequences, then of the prompts' chunks."""

    rows: list[Row]
    decoding: list[RunningSequence]
    chunks: list[tuple[RunningSequence, int]]  # with the number of tokens
    draft_tokens: int = 0  # in the drafts of decoding

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens in the step."""
        return sum(count for _, count in self.chunks)


def _order(item: Sequence | RunningSequence) -> tuple[int, int]:
    return item.order


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
        """idle_tokens, swap_bytes: see KvCache. speculation: for a backend that takes drafts."""
        capacity = backend.capacity
        self._backend = backend
        self._pacer = pacer
        self._batch_tokens = capacity.batch_tokens
        self._score_tokens = capacity.score_tokens
        self._max_running = min(max_running, capacity.max_sequences, capacity.batch_tokens)
        self._speculation = speculation
        self._draft_tokens = capacity.draft_tokens
        self._reserved = 0  # cells that the rows chosen for this step take
        self.cache = KvCache(backend, idle_tokens, swap_bytes, lambda: pacer.prefill_token_s)
        self.waiting: list[Sequence] = []
        self.prefilling: list[RunningSequence] = []
        self.decoding: list[RunningSequence] = []
        self.preemptions = 0
        self.failed: list[tuple[Sequence, Exception]] = []  # no sampler could be made for them

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self.prefilling) + len(self.decoding)

    def tidy(self) -> None:
        """Move finished sequences beyond the limit out of the pool, as many as a step may."""
        self.cache.swap.begin_step()
        self.cache.evict_idle()

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        insort(self.waiting, sequence, key=_order)

    def cancel(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it is. What it computed stays as cache."""
        batch = (*self.decoding, *self.prefilling)
        running = next((item for item in batch if item.sequence is sequence), None)
        if running is None:
            index = bisect_left(self.waiting, sequence.order, key=_order)
            assert self.waiting[index] is sequence, f"{sequence.id} is not in the queue"
            del self.waiting[index]
        else:
            self.finish(running)

    def finish(self, running: RunningSequence) -> None:
        """Take a running sequence out. What it computed stays as cache."""
        self._leave(running)
        self.cache.retire(running)

    def discard(self, running: RunningSequence) -> None:
        """Take out a running sequence whose tokens in the cache cannot be trusted."""
        self._leave(running)
        self.cache.discard(running)

    def reset(self) -> None:
        """Take out all running sequences and forget the cache: the backend was reset."""
        self.decoding.clear()
        self.prefilling.clear()
        self.cache.clear()

    def schedule(self) -> ScheduledStep:
        """The next step; its rows are empty when there is nothing to compute."""
        self.tidy()
        self._yield_to_priority()
        self._make_room_to_decode()
        decoding = list(self.decoding)
        rows = [running.row for running in decoding]
        draft_tokens = self._propose_drafts(decoding)
        chunks: list[tuple[RunningSequence, int]] = []
        if self.prefilling or self.waiting:
            limit = self._batch_tokens - len(decoding) - draft_tokens
            budget = self._pacer.prefill_budget(limit, len(decoding))
            chunks = self._chunks(budget, len(decoding) + draft_tokens)
            rows += [running.chunk(count) for running, count in chunks]
        return ScheduledStep(rows, decoding, chunks, draft_tokens)

    def advance(self, step: ScheduledStep) -> None:
        """The step's tokens are in the backend's cache now, without those of the drafts."""
        for running in step.decoding:
            running.computed += 1
            running.row.position += 1
        self.cache.pool.grow(row.sequence for row in step.rows[: len(step.decoding)])
        for running, count in step.chunks:
            self.cache.append(running, count)

    def confirm(self, running: RunningSequence, count: int) -> None:
        """So many tokens of the sequence's draft are in the backend's cache too."""
        running.row.position += count
        self.cache.append(running, count)

    def decode(self, running: RunningSequence) -> None:
        """The prompt of the sequence is computed and a token sampled: it decodes from now on."""
        self.prefilling.remove(running)
        self.decoding.append(running)
        running.row.position = running.computed

    def relieve(self) -> bool:
        """The backend had no room where the ledger saw some: evict or preempt. False when
        nothing is left to take."""
        if self.cache.evict_oldest():
            return True
        if self.running < 2:
            return False
        self._preempt(self._last_in_order())
        return True

    def _leave(self, running: RunningSequence) -> None:
        (self.prefilling if running in self.prefilling else self.decoding).remove(running)

    def _last_in_order(self) -> RunningSequence:
        return max([*self.prefilling, *self.decoding], key=_order)

    def _preempt(self, running: RunningSequence) -> None:
        self.discard(running)
        self._requeue(running)

    def _requeue(self, running: RunningSequence) -> None:
        self.add(running.sequence)
        self.preemptions += 1

    def _yield_to_priority(self) -> None:
        """Put running sequences back into the queue for waiting ones of a lower priority number,
        where ids or the pool are short. What they computed stays as cache while it can."""
        admitted = 0
        for sequence in list(self.waiting):
            if not self.running or self._last_in_order().sequence.priority <= sequence.priority:
                return
            if self._held(sequence):
                continue
            admitted += 1
            while self.running and self._is_blocked(sequence, admitted):
                last = self._last_in_order()
                self.finish(last)
                self._requeue(last)

    def _is_blocked(self, sequence: Sequence, admitted: int) -> bool:
        """Whether the last running sequence keeps a more urgent one waiting. admitted: sequences
        that are to be admitted in this step, this one included."""
        if self._last_in_order().sequence.priority <= sequence.priority:
            return False
        if self.running + admitted > self._max_running:
            return True
        return not self._fits(
            sequence, self.cache.prefixes.longest_match(sequence.tokens, sequence.salt)
        )

    def _make_room_to_decode(self) -> None:
        while self.cache.pool.free < len(self.decoding):
            if not self.cache.evict_oldest():
                self._preempt(self._last_in_order())

    def _propose_drafts(self, decoding: list[RunningSequence]) -> int:
        """Let speculation use what room there is. Returns the number of tokens proposed."""
        if self._speculation is None or not decoding:
            return 0
        count = len(decoding)
        free = min(self._batch_tokens - count, self.cache.pool.free - count)
        return self._speculation.propose(decoding, min(self._draft_tokens, free))

    def _chunks(self, budget: int, reserved: int) -> list[tuple[RunningSequence, int]]:
        """Chunks within budget, leaving reserved cells to the decoding sequences."""
        chunks: list[tuple[RunningSequence, int]] = []
        self._reserved = reserved
        scored, left_over = self._score_tokens, budget - self._pacer.enough_prefill()
        for running in self._candidates():
            count = self._chunk_tokens(running, budget, alone=not chunks)
            if count <= 0:
                break
            if running.sequence.unscored:
                count = min(count, scored)
                if count == 0:
                    continue
                scored -= count
            self._reserved += count
            self.cache.evict_to(self._reserved)
            chunks.append((running, count))
            budget -= count
            if budget <= 0 or (count == running.pending and budget <= left_over):
                break
        if not chunks and not self.decoding and self.running > 1:
            self._preempt(self._last_in_order())
            return self._chunks(budget, reserved)
        return chunks

    def _chunk_tokens(self, running: RunningSequence, budget: int, *, alone: bool) -> int:
        free = self.cache.pool.free + self.cache.pool.idle - self._reserved
        limit, images = min(budget, running.pending), running.sequence.images
        if images is None or min(limit, free) <= 0:
            return min(limit, free)
        return images.portion(running.computed, limit, free, alone)

    def _candidates(self) -> Iterator[RunningSequence]:
        """Running prompts, then queued ones, each admitted only when it is asked for; but queued
        ones before running ones of a higher priority number."""
        if self.prefilling and self.waiting:
            first = self.waiting[0].priority
            later = [item for item in self.prefilling if item.sequence.priority > first]
            yield from self.prefilling[: len(self.prefilling) - len(later)]
            if later:
                yield from self._admitted(later[0].sequence.priority)
                yield from later
        else:
            yield from list(self.prefilling)
        yield from self._admitted()

    def _admitted(self, before: int | None = None) -> Iterator[RunningSequence]:
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
            if self._create_sampler(sequence):
                yield self._admit(sequence, match)

    def _match(self, sequence: Sequence) -> Match | None:
        """Where to begin: in the pool, or with a copy if that gives more and has room."""
        if sequence.unscored:
            return None
        resident = self.cache.prefixes.longest_match(sequence.tokens, sequence.salt)
        swapped = self.cache.swap.longest_match(sequence.tokens, sequence.salt)
        worth = RESTORE_TOKENS + (0 if resident is None else resident.length)
        if swapped is None or swapped.length < worth or not self._fits(sequence, swapped):
            return resident
        return swapped

    def _held(self, sequence: Sequence) -> bool:
        source = sequence.held_by
        if source is None:
            return False
        if self.cache.prefixes.is_running(source) and source.computed < sequence.held_until:
            return True
        sequence.held_by = None
        return False

    def _hold(self, sequence: Sequence, available: int) -> bool:
        """Let the sequence wait for a prefix that a running one is computing, if that is worth
        it."""
        ahead = self.cache.prefixes.ahead(sequence.tokens, sequence.salt)
        if ahead is None or ahead.length < available + HOLD_TOKENS:
            return False
        sequence.held_by, sequence.held_until = ahead.source, ahead.length
        return True

    def _fits(self, sequence: Sequence, match: Match | None) -> bool:
        if not self.running:
            return True
        pool, needed = self.cache.pool, len(sequence.tokens) + 1
        if match is None:
            pass
        elif isinstance(match.source, SwappedSequence):
            needed = max(needed, match.source.computed)  # a copy comes back as a whole
        else:
            needed -= pool.live_prefix(match.source.slot, match.length)
        promised = sum(other.pending + 1 for other in self.prefilling)
        reserve = RESERVE_TOKENS * self.running
        return pool.live + promised + reserve + needed <= pool.capacity_tokens

    def _create_sampler(self, sequence: Sequence) -> bool:
        """Make the sampler, which outlives preemptions. False: the request has failed."""
        try:
            if sequence.sampler is None:
                sequence.sampler = self._backend.create_sampler(sequence.params)
                sequence.sampler.accept(sequence.penalty_window())
        except Exception as error:
            self.failed.append((sequence, error))
            return False
        return True

    def _admit(self, sequence: Sequence, match: Match | None) -> RunningSequence:
        running = self.cache.allocate(sequence, match, self._reserved)
        if sequence.cached is None:
            sequence.cached = running.computed
        insort(self.prefilling, running, key=_order)
        return running
