"""Which tokens the next step computes.

Every step runs all decoding sequences, one token each, and gives the rest of its token budget to
prompts: the running ones first, then new ones from the queue, by priority, then by whose turn it is
(fair_share.py), then by arrival. The scheduler owns the queues; the cells of the cache are
kv_cache.py's. It knows nothing of text or sampling.

A sequence is admitted when there is room for its whole prompt. If slots or cells are short, a
running sequence with a higher priority number, or of a client that has more than its share, returns
to the queue for it; what it had computed stays cached while there is room. When no cells are left
to continue, the last running sequence returns to the queue and is computed again later.

Nothing waits forever: what has waited long gets a turn before all others, whatever its priority,
one after the other and so rarely that these turns take about a sixteenth of the steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass

from runner.backends.backend import Backend, Row
from runner.engine.fair_share import HEAD_START, OUTPUT_COST, FairShare, Turn, owes
from runner.engine.kv_cache import KvCache, Match
from runner.engine.pacer import Pacer
from runner.engine.running_sequence import RunningSequence
from runner.engine.sequence import Sequence
from runner.engine.speculation import Speculation
from runner.engine.swap import SwappedSequence
from runner.engine.waiting_queue import WaitingQueue

HOLD_TOKENS = 32  # a prefix in progress is worth waiting for when it saves this many
RESTORE_TOKENS = 16  # a copy in the swap is restored when it gives this many more
RESERVE_TOKENS = 16  # room that admission leaves to each running sequence to grow
PATIENCE_STEPS = 512  # what waits for longer has a turn before all others: half a minute on 2 cores
TURN_TOKENS = 32  # of such a turn
STATE_TOKENS = 256  # of a prompt, from which on a state is kept for later ones, and between two,
STATE_END_TOKENS = 16  # without its last tokens: in them a template writes that an answer begins
PRICE = 1  # for each token of a sequence that loses its cells, in prompt tokens


Chunks = Items[tuple[RunningSequence, int]]


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

    def by_adapters(self) -> Iterator[ScheduledStep]:
        """The same work in parts, in each of which the same adapters act."""
        of_decoding = list(zip(self.decoding, self.rows, strict=False))
        of_chunks = list(zip(self.chunks, self.rows[len(of_decoding) :], strict=True))
        batch = (*self.decoding, *(running for running, _ in self.chunks))
        for adapters in dict.fromkeys(running.adapters for running in batch):
            decoding = [item for item in of_decoding if item[0].adapters == adapters]
            chunks = [item for item in of_chunks if item[0][0].adapters == adapters]
            yield ScheduledStep(
                [row for _, row in (*decoding, *chunks)],
                [running for running, _ in decoding],
                [chunk for chunk, _ in chunks],
                sum(len(row.draft) for _, row in decoding),
            )


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
        self._partial_share = capacity.partial_share
        self._reserved = 0  # cells that the rows chosen for this step take
        self.cache = KvCache(backend, idle_tokens, swap_bytes, lambda: pacer.prefill_token_s)
        self.share = FairShare()
        self.waiting = WaitingQueue(self.share)
        self.prefilling: list[RunningSequence] = []
        self.decoding: list[RunningSequence] = []
        self.preemptions = 0
        self.failed: list[tuple[Sequence, Exception]] = []  # no sampler could be made for them
        self._steps = 0
        self._turn_step = 0  # when to look next who has waited for too long
        self._turns: list[Sequence] = []  # that go before all others

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
        self.share.enter(sequence.client)
        sequence.queued_step, sequence.turn_ends = self._steps, 0
        self.waiting.add(sequence)

    def cancel(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it is. What it computed stays as cache."""
        batch = (*self.decoding, *self.prefilling)
        running = next((item for item in batch if item.sequence is sequence), None)
        if running is None:
            self.waiting.remove(sequence)
            self.share.leave(sequence.client)
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
        for running in (*self.decoding, *self.prefilling):
            self._leave(running)
        self.cache.clear()

    def schedule(self) -> ScheduledStep:
        """The next step; its rows are empty when there is nothing to compute."""
        self.tidy()
        self._steps += 1
        self._give_turn()
        self._make_room_to_decode()
        count, draft_tokens = len(self.decoding), self._propose_drafts()
        chunks: list[tuple[RunningSequence, int]] = []
        if self.prefilling or self.waiting:
            limit = self._batch_tokens - count - draft_tokens
            budget = self._pacer.prefill_budget(limit, count)
            chunks = self._chunks(budget, count + draft_tokens)
        decoding = list(self.decoding)  # without those that have given up their places
        if draft_tokens and len(decoding) < count:
            draft_tokens = sum(len(running.row.draft) for running in decoding)
        rows = [running.row for running in decoding]
        rows += [running.chunk(count) for running, count in chunks]
        return ScheduledStep(rows, decoding, chunks, draft_tokens)

    def advance(self, step: ScheduledStep) -> None:
        """The step's tokens are in the backend's cache now, without those of the drafts."""
        for running in step.decoding:
            running.computed += 1
            running.row.position += 1
        clients = (running.sequence.client for running in step.decoding)
        self.share.charge_each(clients, len(step.decoding))
        self.cache.pool.grow(row.sequence for row in step.rows[: len(step.decoding)])
        for running, count in step.chunks:
            self.cache.append(running, count)
            if running.computed in running.state_ends:
                self.cache.keep_state(running)
            again = max(0, running.sequence.charged - (running.computed - count))
            self.share.charge(running.client, max(0, count - again))

    def confirm(self, running: RunningSequence, count: int) -> None:
        """So many tokens of the sequence's draft are in the backend's cache too."""
        running.row.position += count
        self.cache.append(running, count)
        self.share.charge(running.client, count * OUTPUT_COST)

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
        self._preempt(self._last())
        return True

    def _leave(self, running: RunningSequence) -> None:
        (self.prefilling if running in self.prefilling else self.decoding).remove(running)
        running.sequence.charged = max(running.sequence.charged, running.computed)
        self.share.stop(running.client)

    def _last(self) -> RunningSequence:
        """The running sequence that is the first to give up its place."""
        return max((*self.prefilling, *self.decoding), key=self._claim)

    def _claim(self, running: RunningSequence) -> tuple[int, Turn, int, int]:
        priority, behind, arrival = running.sequence.order
        return priority, self._turn(running.sequence), behind, arrival

    def _outranks(
        self, sequence: Sequence, running: RunningSequence, price_tokens: int = 0
    ) -> bool:
        """Whether a running sequence gives up its place for a waiting one. price_tokens: see
        owes."""
        mine, its = sequence.order, running.sequence.order
        if mine[0] != its[0]:
            return mine[0] < its[0]
        if sequence.client == running.client:
            return mine[1] < its[1]
        return owes(self._turn(running.sequence), self._turn(sequence), price_tokens)

    def _passes(self, sequence: Sequence, running: RunningSequence) -> bool:
        """Whether a waiting sequence's prompt is computed before that of a running one: also when
        it is shorter and its client has had less, which costs nothing and is over soon."""
        if self._outranks(sequence, running):
            return True
        other = sequence.client != running.client
        same = sequence.order[0] == running.sequence.order[0]
        less = self._turn(sequence) < self._turn(running.sequence)
        return other and same and less and len(sequence.tokens) < running.pending

    def _turn(self, sequence: Sequence) -> Turn:
        return self.share.turn(sequence.client, sequence.output_tokens)

    def _preempt(self, running: RunningSequence) -> None:
        self.discard(running)
        self._requeue(running)

    def _requeue(self, running: RunningSequence) -> None:
        self.add(running.sequence)
        self.preemptions += 1

    def _give_turn(self) -> None:
        """Let what has waited for too long go before all others, and end the turns of those that
        have had theirs. What waits for its client's own of the same priority waits for their end
        only."""
        for sequence in [one for one in self._turns if len(one.tokens) >= one.turn_ends]:
            sequence.turn_ends = 0
            self._turns.remove(sequence)
        if not self.waiting or self._steps < self._turn_step:
            return
        self._turn_step = self._steps + TURN_TOKENS
        running = (*self.decoding, *self.prefilling)
        own = {(item.client, item.sequence.priority) for item in running}
        late = [item for item in self.waiting if (item.client, item.priority) not in own]
        oldest = min(late, key=lambda item: item.queued_step, default=None)
        if oldest is not None and oldest.queued_step + PATIENCE_STEPS <= self._steps:
            self._turn_step = self._steps + max(1, PATIENCE_STEPS // self._max_running)
            self.waiting.remove(oldest)
            oldest.turn_ends = len(oldest.tokens) + TURN_TOKENS
            self._turns.append(oldest)
            self.waiting.add(oldest)

    def _grow_ahead(self) -> None:
        """Let the cache grow before the decoding sequences fill it. One that is alone in a cache
        that stays as it is ends where the cache does: nobody else could leave it."""
        reserve = RESERVE_TOKENS + self._draft_tokens
        grown = self.cache.grow(self.cache.pool.live + len(self.decoding) + reserve)
        if not grown and self.running == 1:
            self.decoding[0].sequence.end_at(self.cache.pool.capacity_tokens)

    def _make_room_to_decode(self) -> None:
        if self.decoding:
            self._grow_ahead()
        while self.cache.pool.free < len(self.decoding):
            if not self.cache.evict_oldest():
                self._preempt(self._last())

    def _propose_drafts(self) -> int:
        """Let speculation use what room there is. Returns the number of tokens proposed."""
        if self._speculation is None or not self.decoding:
            return 0
        count = len(self.decoding)
        free = min(self._batch_tokens - count, self.cache.pool.free - count)
        return self._speculation.propose(self.decoding, min(self._draft_tokens, free))

    def _chunks(self, budget: int, reserved: int) -> list[tuple[RunningSequence, int]]:
        """Chunks within budget, leaving reserved cells to the decoding sequences."""
        chunks: list[tuple[RunningSequence, int]] = []
        self._reserved = reserved
        scored, left_over = self._score_tokens, budget - self._pacer.enough_prefill()
        for running in self._candidates(chunks):
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
            self._preempt(self._last())
            return self._chunks(budget, reserved)
        return chunks

    def _chunk_tokens(self, running: RunningSequence, budget: int, *, alone: bool) -> int:
        free = self.cache.pool.free + self.cache.pool.idle - self._reserved
        limit, images = min(budget, running.pending), running.sequence.images
        end = next((end for end in running.state_ends if end > running.computed), None)
        if end is not None:
            limit = min(limit, end - running.computed)
        if images is None or min(limit, free) <= 0:
            return min(limit, free)
        return images.portion(running.computed, limit, free, alone)

    def _state_ends(self, running: RunningSequence, common: int) -> tuple[int, ...]:
        """Where states are kept, if a part of a sequence cannot be had from the whole: where an
        earlier prompt went on otherwise (common), where others may begin too, and at the end."""
        sequence, prompt = running.sequence, running.prompt
        plain = sequence.images is None and not sequence.prompt_only
        if self._partial_share or prompt is None or not plain:
            return ()
        last, ends = sequence.cached or 0, []
        for end in sorted((common, sequence.public, prompt - STATE_END_TOKENS)):
            if end - last >= STATE_TOKENS and end <= prompt - STATE_END_TOKENS:
                ends.append(end)
                last = end
        return tuple(ends)

    def _candidates(self, chunks: Chunks) -> Iterator[RunningSequence]:
        """Running prompts and queued ones, which are admitted only when they are asked for: after
        the running ones, unless they go before them. chunks: those that have been taken."""
        for running in list(self.prefilling):
            yield from self._admitted(chunks, running)
            if running in self.prefilling:
                yield running
        yield from self._admitted(chunks)

    def _admitted(
        self, chunks: Chunks, before: RunningSequence | None = None
    ) -> Iterator[RunningSequence]:
        """Queued sequences that find room, or are given some; before: those that go before this
        running one only."""
        passed: Counter[str] = Counter()
        while (sequence := self.waiting.first(passed)) is not None:
            if before is not None and not self._passes(sequence, before):
                return
            if self._full and self._victim(sequence, chunks) is None:
                return
            match = None if self._held(sequence) else self._match(sequence)
            if self._held(sequence) or self._hold(sequence, match):
                passed[sequence.client] += 1
                continue
            while self._full or not self._fits(sequence, match):
                victim = self._victim(sequence, chunks)
                if victim is None:
                    return
                self.finish(victim)
                self._requeue(victim)
                match = self._match(sequence)
            self.waiting.remove(sequence)
            if self._create_sampler(sequence):
                yield self._admit(sequence, match)

    @property
    def _full(self) -> bool:
        return self.running >= self._max_running

    def _victim(self, sequence: Sequence, chunks: Chunks) -> RunningSequence | None:
        """The running sequence that gives up its place or its cells for a waiting one."""
        chosen = [running for running, _ in chunks]
        batch = [item for item in (*self.prefilling, *self.decoding) if item not in chosen]
        if not batch:
            return None
        last = max(batch, key=self._claim)
        price = 0 if self._full else min(len(last.tokens) * PRICE, HEAD_START // 2)
        return last if self._outranks(sequence, last, price) else None

    def _match(self, sequence: Sequence) -> Match | None:
        """Where to begin: in the pool, or with a copy if that gives more and has room."""
        if sequence.unscored:
            return None
        resident = self.cache.prefixes.longest_match(*sequence.prefix)
        swapped = self.cache.swap.longest_match(*sequence.prefix)
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

    def _hold(self, sequence: Sequence, match: Match | None) -> bool:
        """Let the sequence wait for a prefix that a running one is computing, if that is worth
        it. match: where it could begin now."""
        if sequence.unscored:
            return False
        available = 0 if match is None else match.length
        ahead = self.cache.prefixes.ahead(*sequence.prefix)
        if ahead is None or ahead.length < available + HOLD_TOKENS:
            return False
        sequence.held_by, sequence.held_until = ahead.source, ahead.length
        return True

    def _fits(self, sequence: Sequence, match: Match | None) -> bool:
        if not self.running:  # the pool has had room for each by itself since it was queued
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
        return self.cache.grow(pool.live + promised + reserve + needed)

    def _create_sampler(self, sequence: Sequence) -> bool:
        """Make the sampler, which outlives preemptions. False: the request has failed."""
        try:
            if sequence.sampler is None:
                sequence.sampler = self._backend.create_sampler(sequence.params)
                sequence.sampler.accept(sequence.penalty_window())
        except Exception as error:
            self.failed.append((sequence, error))
            self.share.leave(sequence.client)
            return False
        return True

    def _admit(self, sequence: Sequence, match: Match | None) -> RunningSequence:
        common = 0 if self._partial_share else self.cache.common(*sequence.prefix)
        try:
            running = self.cache.allocate(sequence, match, self._reserved)
        except Exception:
            self.share.leave(sequence.client)
            raise
        if sequence.cached is None:
            sequence.cached = running.computed
        running.state_ends = self._state_ends(running, common)
        later = (at for at, item in enumerate(self.prefilling) if self._passes(sequence, item))
        self.prefilling.insert(next(later, len(self.prefilling)), running)
        self.share.start(sequence.client)
        return running
