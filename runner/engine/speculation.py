"""Tokens proposed before the model has computed them, so that a step can yield several.

A proposal costs the model one token more in the same step; each that its own sampling confirms is
an answer's token won. Answers do not change. Proposals come from a draft model, which continues
each sequence greedily (Leviathan et al. 2023, arXiv:2211.17192, with a draft that is certain of
each token), or from the sequence's own past (prompt lookup: what followed when the last tokens
stood there before). Whether they pay is measured as the model runs. Knows no queues and no text.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Protocol

from runner.backends.backend import Backend, PoolFull, Row, Sampler
from runner.engine.sequence import Sequence
from runner.types import SamplingParams

LOOKUP_TOKENS = 3  # so many last tokens must have stood there before
LOOKBACK_TOKENS = 8192
REMEASURE_STEPS = 256  # after so many steps of one size the slower way is measured once more
SMOOTHING = 0.1  # of the newest time in the averages


class Drafter(Protocol):
    """Where proposals come from."""

    def propose(self, asked: Items[tuple[Sequence, int]]) -> list[list[int]]:
        """For each sequence at most so many tokens that may follow its last one; none where it
        has no idea."""


class PromptLookup:
    """Continues a sequence with what followed its last tokens before."""

    def propose(self, asked: Items[tuple[Sequence, int]]) -> list[list[int]]:
        """See Drafter."""
        return [
            _text(found) if sequence.images is not None else found
            for sequence, most in asked
            for found in (prompt_lookup(sequence.tokens, most),)
        ]


def _text(tokens: list[int]) -> list[int]:
    """The tokens up to an image."""
    return tokens[: next((at for at, token in enumerate(tokens) if token < 0), len(tokens))]


def prompt_lookup(tokens: array[int], most: int) -> list[int]:
    """At most most tokens that followed the last LOOKUP_TOKENS where they stood last before."""
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
    return recent[start : start + most].tolist()


@dataclass(slots=True)
class _Draft:
    """What the draft model has in its cache for the sequence of this id. sure: so many of the
    first tokens are the sequence's own."""

    id: str
    sampler: Sampler
    tokens: array[int] = field(default_factory=lambda: array("i"))
    sure: int = 0


class DraftModel:
    """A smaller model of the same vocabulary, with a cache of its own, which knows sequences by
    the ids that they have in the large model's cache. It sees no images, and has no idea of
    sequences with some."""

    def __init__(self, backend: Backend) -> None:
        """Takes over backend."""
        self._backend = backend
        self._drafts: dict[int, _Draft] = {}

    def propose(self, asked: Items[tuple[Sequence, int]]) -> list[list[int]]:
        """See Drafter. A sequence with more new tokens than fit in a batch catches up over
        several calls and gets nothing until then."""
        try:
            return self._propose(asked)
        except PoolFull:
            self._backend.reset()
            for draft in self._drafts.values():
                draft.sampler.close()
            self._drafts.clear()
            return [[] for _ in asked]

    def _propose(self, asked: Items[tuple[Sequence, int]]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in asked]
        place = {sequence.slot: at for at, (sequence, _) in enumerate(asked)}
        rows = self._first_rows(asked)
        while rows:
            sampled = self._backend.step(rows)
            for row in rows:
                self._drafts[row.sequence].tokens.extend(row.tokens)
            rows = []
            for one in sampled:
                at = place[one.sequence]
                found[at].append(one.token)
                if len(found[at]) < asked[at][1]:
                    draft = self._drafts[one.sequence]
                    rows.append(Row(one.sequence, [one.token], len(draft.tokens), draft.sampler))
        return found

    def _first_rows(self, asked: Items[tuple[Sequence, int]]) -> list[Row]:
        rows: list[Row] = []
        room = self._backend.capacity.batch_tokens
        for sequence, most in asked:
            fits = len(sequence.tokens) + most <= self._backend.capacity.context_length
            if most < 1 or not fits or sequence.slot is None or sequence.images is not None:
                continue
            draft = self._draft(sequence.slot, sequence)
            new = sequence.tokens[draft.sure : draft.sure + room].tolist()
            if new:
                whole = draft.sure + len(new) == len(sequence.tokens)
                sampler = draft.sampler if whole else None
                rows.append(Row(sequence.slot, new, draft.sure, sampler))
                room -= len(new)
        return rows

    def _draft(self, slot: int, sequence: Sequence) -> _Draft:
        """What is in the cache for the sequence, its last token and wrong proposals left out."""
        draft = self._drafts.get(slot)
        if draft is None or draft.id != sequence.id:
            self._backend.release(slot)
            if draft is not None:
                draft.sampler.close()
            greedy = self._backend.create_sampler(SamplingParams(temperature=0.0))
            draft = self._drafts[slot] = _Draft(sequence.id, greedy)
        held, tokens = draft.tokens, sequence.tokens
        most = min(len(held), len(tokens) - 1)
        while draft.sure < most and held[draft.sure] == tokens[draft.sure]:
            draft.sure += 1
        if draft.sure < len(held):
            self._backend.trim(slot, draft.sure)
            del held[draft.sure :]
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

    def __init__(self, drafter: Drafter, most_tokens: int) -> None:
        """Takes over drafter. most_tokens: of one sequence in a step."""
        self._drafter = drafter
        self._most = most_tokens
        self._worth = DraftTimings()
        self.proposed = 0  # tokens
        self.confirmed = 0

    def propose(self, sequences: Items[Sequence], room: int) -> int:
        """Set the drafts of the sequences' rows, at most room tokens together, and return how
        many they are. Sequences with a grammar have none."""
        for sequence in sequences:
            sequence.row.draft = ()
        if not sequences or not self._worth.drafting(len(sequences)):
            return 0
        most = min(self._most, room // len(sequences))
        asked = [
            (sequence, min(most, sequence.limit - len(sequence.tokens) - 1))
            for sequence in sequences
            if sequence.matcher is None
        ]
        total = 0
        for (sequence, count), draft in zip(asked, self._drafter.propose(asked), strict=True):
            sequence.row.draft = draft[: max(count, 0)]
            total += len(sequence.row.draft)
        return total

    def observe(self, sequences: int, drafted: int, tokens: int, seconds: float) -> None:
        """A step of so many sequences and without prompts gave tokens in seconds, those of the
        proposals included."""
        self.proposed += drafted
        self.confirmed += tokens - sequences
        self._worth.measured(sequences, drafted > 0, seconds / max(tokens, 1))
