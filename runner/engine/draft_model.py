"""Proposals from a smaller model of the same vocabulary.

It continues sequences greedily (Leviathan et al. 2023, arXiv:2211.17192, with a draft that is
certain of each token), token by token while that is worth its time. How likely it thinks a token
tells how likely the large model is to agree.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from runner.backends.backend import Backend, PoolFull, Row, SampledToken, Sampler
from runner.engine.odds import Odds, Proposals
from runner.engine.running_sequence import RunningSequence
from runner.engine.step_costs import StepCosts
from runner.types import SamplingParams

_KINDS = 12  # of odds, by how likely the draft model thinks its token
_FIRST_ODDS = [(kind + 0.5) / _KINDS for kind in range(_KINDS)]
_FIRST_MEAN = 0.7  # of all its tokens
_TRIAL = 16  # where it did not pay, it is tried again with one of so many sequences ...
_TRIAL_TOKENS = 8  # ... for so many tokens
_GREEDY = SamplingParams(temperature=0.0, logprobs=0)


@dataclass(slots=True)
class _Draft:
    """What the draft model has in its cache for the sequence of this id. confirmed: so many of the
    first tokens are the sequence's own. proposed: the last proposals with their kinds, from start
    on. judged: proposals of which it is known whether they were right."""

    id: str
    sampler: Sampler
    mean: Odds
    trial: bool
    tokens: array[int] = field(default_factory=lambda: array("i"))
    confirmed: int = 0
    proposed: list[tuple[int, int]] = field(default_factory=list)
    start: int = 0
    judged: int = 0
    off: bool = False

    def judge(self, tokens: array[int], odds: Odds) -> None:
        """See which of the last proposals were right."""
        known = zip(self.proposed, tokens[self.start :], strict=False)
        for (proposed, kind), token in known:
            odds.observe(kind, proposed == token)
            self.mean.observe(0, proposed == token)
            self.judged += 1
            if proposed != token:
                break
        self.proposed = []


class DraftModel:
    """A model with a cache of its own, which knows sequences by the ids that they have in the large
    model's cache. It sees no images, and has no idea of sequences with some."""

    def __init__(self, backend: Backend, clock: Callable[[], float] = perf_counter) -> None:
        """Takes over backend."""
        self.costs = StepCosts()
        self._backend = backend
        self._clock = clock
        self._drafts: dict[int, _Draft] = {}
        self._odds = Odds(_FIRST_ODDS)
        self._mean = Odds([_FIRST_MEAN])
        self._sequences = 0

    def odds(self, running: RunningSequence, least: float) -> float:
        """That a proposal for the sequence is right; 0 where it shall have none: they were right
        less often than least."""
        draft = self._known(running)
        draft.judge(running.tokens, self._odds)
        mean = draft.mean.of(0)
        if mean < least and (draft.judged >= _TRIAL_TOKENS or not draft.trial):
            draft.off = True
        return 0.0 if draft.off else mean

    def propose(
        self, limits: Sequence[tuple[RunningSequence, int]], least: float
    ) -> list[Proposals]:
        """For each sequence at most so many tokens that may follow its last one; no more where the
        next is needed less likely than least. A sequence with more new tokens than fit in a batch
        catches up over several calls and gets nothing until then."""
        try:
            return self._propose(limits, least)
        except PoolFull:
            self._backend.reset()
            for draft in self._drafts.values():
                draft.sampler.close()
            self._drafts.clear()
            return [([], []) for _ in limits]

    def grow(self, pool_tokens: int) -> None:
        """The cache of the model itself has room for so many tokens now."""
        self._backend.grow(pool_tokens)

    def _propose(
        self, limits: Sequence[tuple[RunningSequence, int]], least: float
    ) -> list[Proposals]:
        found: list[Proposals] = [([], []) for _ in limits]
        index = {running.slot: at for at, (running, _) in enumerate(limits)}
        rows = self._first_rows(limits)
        while rows:
            began_s, count = self._clock(), sum(len(row.tokens) for row in rows)
            sampled = self._backend.step(rows)
            self.costs.observe(count, self._clock() - began_s)
            for row in rows:
                self._drafts[row.sequence].tokens.extend(row.tokens)
            rows = []
            for one in sampled:
                at = index[one.sequence]
                tokens, odds = found[at]
                draft = self._drafts[one.sequence]
                kind = _kind(one)
                tokens.append(one.token)
                odds.append(self._odds.of(kind))
                draft.proposed.append((one.token, kind))
                reach = math.prod(odds) * draft.mean.of(0)
                if len(tokens) < limits[at][1] and reach >= least:
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
            draft = self._up_to_date(running)
            new = running.tokens[draft.confirmed : draft.confirmed + budget].tolist()
            if new:
                whole = draft.confirmed + len(new) == len(running.tokens)
                sampler = draft.sampler if whole else None
                draft.start = len(running.tokens)
                rows.append(Row(running.slot, new, draft.confirmed, sampler))
                budget -= len(new)
        return rows

    def _known(self, running: RunningSequence) -> _Draft:
        slot, draft = running.slot, self._drafts.get(running.slot)
        if draft is None or draft.id != running.id:
            self._backend.release(slot)
            if draft is not None:
                draft.sampler.close()
            trial = self._sequences % _TRIAL == 0
            self._sequences += 1
            greedy = self._backend.create_sampler(_GREEDY)
            draft = self._drafts[slot] = _Draft(running.id, greedy, Odds(self._mean), trial)
        return draft

    def _up_to_date(self, running: RunningSequence) -> _Draft:
        """What is in the cache for the sequence, its last token and wrong proposals left out."""
        slot, draft = running.slot, self._known(running)
        cached, tokens = draft.tokens, running.tokens
        limit = min(len(cached), len(tokens) - 1)
        while draft.confirmed < limit and cached[draft.confirmed] == tokens[draft.confirmed]:
            draft.confirmed += 1
        if draft.confirmed < len(cached):
            self._backend.trim(slot, draft.confirmed)
            del cached[draft.confirmed :]
        return draft


def _kind(sampled: SampledToken) -> int:
    likely = 1.0 if sampled.logprob is None else math.exp(sampled.logprob)
    return min(int(likely * _KINDS), _KINDS - 1)
