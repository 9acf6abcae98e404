"""Tokens proposed before the model has computed them, so that a step can yield several.

A proposal costs the model one token more in the same step; each that its own sampling confirms is
an answer's token won. Answers do not change. Proposals come from a draft model, which continues
each sequence greedily (Leviathan et al. 2023, arXiv:2211.17192, with a draft that is certain of
each token), or from the sequence's own past (prompt lookup: what followed when the last tokens
stood there before). Whether they pay is measured as the model runs. Knows no queues and no text.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runner.backends.backend import Backend, PoolFull, Row, Sampler
from runner.engine.running_sequence import RunningSequence
from runner.types import SamplingParams

LOOKUP_TOKENS = 3  # so many last tokens must have stood there before
LOOKBACK_TOKENS = 8192
REMEASURE_STEPS = 256  # after so many steps of one size the slower way is measured once more
SMOOTHING = 0.1  # of the newest time in the averages


class Drafter(Protocol):
    """Where proposals come from."""

    def propose(self, limits: Sequence[tuple[RunningSequence, int]]) -> list[list[int]]:
        """For each sequence at most so many tokens that may follow its last one; none where it
        has no idea."""

    def grow(self, pool_tokens: int) -> None:
        """The cache of the model itself has room for so many tokens now."""
        return


class PromptLookup(Drafter):
    """Continues a sequence with what followed its last tokens before."""

    def propose(self, limits: Sequence[tuple[RunningSequence, int]]) -> list[list[int]]:
        return [_before_image(prompt_lookup(one.tokens, count)) for one, count in limits]


def _before_image(tokens: list[int]) -> list[int]:
    return tokens[: next((at for at, token in enumerate(tokens) if token < 0), len(tokens))]


def prompt_lookup(tokens: array[int], max_tokens: int) -> list[int]:
    """The tokens, at most max_tokens, that followed the last LOOKUP_TOKENS where they stood last
    before."""
    recent = tokens[-LOOKBACK_TOKENS:]
    data, size = recent.tobytes(), recent.itemsize
    end = len(data) - size
    tail = data[-LOOKUP_TOKENS * size :]
    if len(tail) < LOOKUP_TOKENS * size:
        return []
    at = data.rfind(tail, 0, end)
    while at > 0 and at % size:
        at = data.rfind(tail, 0, at + len(tail) - 1)
    if at < 0 or at % size:
        return []
    start = at // size + LOOKUP_TOKENS
    return recent[start : start + max_tokens].tolist()


@dataclass(slots=True)
class _Draft:
    """What the draft model has in its cache for the sequence of this id. confirmed: so many of the
    first tokens are the sequence's own."""

    id: str
    sampler: Sampler
    tokens: array[int] = field(default_factory=lambda: array("i"))
    confirmed: int = 0


class DraftModel:
    """A smaller model of the same vocabulary, with a cache of its own, which knows sequences by
    the ids that they have in the large model's cache. It sees no images, and has no idea of
    sequences with some."""

    def __init__(self, backend: Backend) -> None:
        """Takes over backend."""
        self._backend = backend
        self._drafts: dict[int, _Draft] = {}

    def propose(self, limits: Sequence[tuple[RunningSequence, int]]) -> list[list[int]]:
        """See Drafter. A sequence with more new tokens than fit in a batch catches up over
        several calls and gets nothing until then."""
        try:
            return self._propose(limits)
        except PoolFull:
            self._backend.reset()
            for draft in self._drafts.values():
                draft.sampler.close()
            self._drafts.clear()
            return [[] for _ in limits]

    def grow(self, pool_tokens: int) -> None:
        """See Drafter."""
        self._backend.grow(pool_tokens)

    def _propose(self, limits: Sequence[tuple[RunningSequence, int]]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in limits]
        index = {running.slot: at for at, (running, _) in enumerate(limits)}
        rows = self._first_rows(limits)
        while rows:
            sampled = self._backend.step(rows)
            for row in rows:
                self._drafts[row.sequence].tokens.extend(row.tokens)
            rows = []
            for one in sampled:
                at = index[one.sequence]
                found[at].append(one.token)
                if len(found[at]) < limits[at][1]:
                    draft = self._drafts[one.sequence]
                    rows.append(Row(one.sequence, [one.token], len(draft.tokens), draft.sampler))
        return found

    def _first_rows(self, limits: Sequence[tuple[RunningSequence, int]]) -> list[Row]:
        rows: list[Row] = []
        capacity = self._backend.capacity
        budget, room = capacity.batch_tokens, capacity.pool_tokens
        for running, max_tokens in limits:
            fits = len(running.tokens) + max_tokens <= min(capacity.context_length, room)
            if max_tokens < 1 or not fits or running.sequence.images is not None:
                continue
            draft = self._draft(running)
            new = running.tokens[draft.confirmed : draft.confirmed + budget].tolist()
            if new:
                whole = draft.confirmed + len(new) == len(running.tokens)
                sampler = draft.sampler if whole else None
                rows.append(Row(running.slot, new, draft.confirmed, sampler))
                budget -= len(new)
        return rows

    def _draft(self, running: RunningSequence) -> _Draft:
        """What is in the cache for the sequence, its last token and wrong proposals left out."""
        slot, draft = running.slot, self._drafts.get(running.slot)
        if draft is None or draft.id != running.id:
            self._backend.release(slot)
            if draft is not None:
                draft.sampler.close()
            greedy = self._backend.create_sampler(SamplingParams(temperature=0.0))
            draft = self._drafts[slot] = _Draft(running.id, greedy)
        cached, tokens = draft.tokens, running.tokens
        limit = min(len(cached), len(tokens) - 1)
        while draft.confirmed < limit and cached[draft.confirmed] == tokens[draft.confirmed]:
            draft.confirmed += 1
        if draft.confirmed < len(cached):
            self._backend.trim(slot, draft.confirmed)
            del cached[draft.confirmed :]
        return draft


class DraftTimings:
    """Which way gave a token sooner, by the number of sequences in the step."""

    def __init__(self) -> None:
        self._token_s: dict[tuple[int, bool], float] = {}
        self._steps: dict[int, int] = {}

    def drafting(self, rows: int) -> bool:
        """Whether the next step of so many sequences shall have drafts. Each way is tried
        first."""
        with_s, without_s = self._token_s.get((rows, True)), self._token_s.get((rows, False))
        if with_s is None or without_s is None:
            return with_s is None
        self._steps[rows] = step = self._steps.get(rows, 0) + 1
        return (with_s < without_s) is not (step % REMEASURE_STEPS == 0)

    def measured(self, rows: int, drafted: bool, token_s: float) -> None:
        """A token took so long."""
        known = self._token_s.get((rows, drafted), token_s)
        self._token_s[rows, drafted] = known + SMOOTHING * (token_s - known)


class Speculation:
    """Gives the rows of decoding sequences their drafts, where that pays."""

    def __init__(self, drafter: Drafter, max_tokens: int) -> None:
        """Takes over drafter. max_tokens: of one sequence in a step."""
        self._drafter = drafter
        self._max_tokens = max_tokens
        self._timings = DraftTimings()
        self.proposed = 0  # tokens
        self.confirmed = 0

    def grow(self, pool_tokens: int) -> None:
        """The model's cache has room for so many tokens now."""
        self._drafter.grow(pool_tokens)

    def propose(self, decoding: Sequence[RunningSequence], max_total: int) -> int:
        """Set the drafts of the sequences' rows, at most max_total tokens together, and return
        how many they are. Sequences with a grammar have none."""
        for running in decoding:
            running.row.draft = ()
        if not decoding or not self._timings.drafting(len(decoding)):
            return 0
        each = min(self._max_tokens, max_total // len(decoding))
        limits = [
            (running, min(each, running.sequence.limit - len(running.tokens) - 1))
            for running in decoding
            if running.sequence.matcher is None
        ]
        total = 0
        for (running, count), draft in zip(limits, self._drafter.propose(limits), strict=True):
            running.row.draft = draft[: max(count, 0)]
            total += len(running.row.draft)
        return total

    def observe(self, sequences: int, draft_tokens: int, tokens: int, seconds: float) -> None:
        """A step of so many sequences and without prompts gave tokens in seconds, those of the
        proposals included."""
        self.proposed += draft_tokens
        self.confirmed += tokens - sequences
        self._timings.measured(sequences, draft_tokens > 0, seconds / max(tokens, 1))
