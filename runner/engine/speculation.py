"""Tokens proposed before the model has computed them, so that a step can yield several.

Each proposal costs the model one more token in the same step; each that its own sampling confirms
is a token of the answer gained. Answers do not change. Proposals come from earlier text, from what
a grammar forces, and from a draft model. How many are verified depends on how often proposals of
their kind were right and what a step of that many tokens costs, both measured as the model runs.
Knows no queues and no text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from runner.engine.draft_model import DraftModel
from runner.engine.lookup import VOTE_S, PromptLookup
from runner.engine.odds import Proposals
from runner.engine.running_sequence import RunningSequence
from runner.engine.step_costs import MARGIN, StepCosts, choose

MAX_TOKENS = 32  # of one sequence in a step, unless something else is wanted
_VOTE_SHARE = 0.01  # of a step's time that votes may take
_DRAFT_STEP = 0.3  # of the draft model, of one of the model, before both are known


class Speculation:
    """Gives the rows of decoding sequences their drafts, where that pays."""

    def __init__(
        self,
        max_tokens: int,
        model: DraftModel | None = None,
        is_end: Callable[[int], bool] | None = None,
    ) -> None:
        """Takes over model. max_tokens: of one sequence in a step. is_end: of the
        vocabulary."""
        self._max_tokens = max_tokens
        self._model = model
        self._is_end = is_end
        self._costs = StepCosts()
        self._lookup = PromptLookup()
        self._asked_s = 0.0  # what the draft model took in this step
        self.proposed = 0  # tokens
        self.confirmed = 0

    def grow(self, pool_tokens: int) -> None:
        """The model's cache has room for so many tokens now."""
        if self._model is not None:
            self._model.grow(pool_tokens)

    def propose(self, decoding: Sequence[RunningSequence], max_total: int) -> int:
        """Set the drafts of the sequences' rows, at most max_total tokens together, and return
        how many they are."""
        self._lookup.follow(decoding, votes=self._votes_pay(len(decoding)))
        limits = [min(self._max_tokens, self._room(running)) for running in decoding]
        offers = [
            self._past(running, limit) if max_total > 0 else ([], [])
            for running, limit in zip(decoding, limits, strict=True)
        ]
        self._asked_s = 0.0
        if self._model is not None and max_total > 0:
            began_s = perf_counter()
            self._ask(self._model, decoding, limits, offers)
            self._asked_s = perf_counter() - began_s
        total = 0
        for running in decoding:
            running.row.draft = running.row.draft_masks = ()
        if not any(tokens for tokens, _ in offers):
            return 0
        counts = choose(self._costs, [odds for _, odds in offers], max_total)
        for running, (tokens, _), count in zip(decoding, offers, counts, strict=True):
            if count:
                total += count
                running.row.draft = tokens[:count]
                if running.row.mask is not None and running.sequence.matcher is not None:
                    running.row.draft_masks = running.sequence.matcher.draft(tokens[:count])
        return total

    def observe(self, sequences: int, draft_tokens: int, tokens: int, seconds: float) -> None:
        """A step of so many sequences, without prompts, took seconds, from its beginning on. It
        gave tokens, those of the proposals included."""
        self.proposed += draft_tokens
        self.confirmed += tokens - sequences
        self._costs.observe(sequences + draft_tokens, max(0.0, seconds - self._asked_s))

    def _votes_pay(self, sequences: int) -> bool:
        step_s = (self._costs.token_s or 0.0) * self._costs.cost(sequences)
        return sequences * VOTE_S <= _VOTE_SHARE * step_s

    def _room(self, running: RunningSequence) -> int:
        return max(0, running.sequence.limit - len(running.tokens) - 1)

    def _past(self, running: RunningSequence, limit: int) -> Proposals:
        return self._allowed(running, self._lookup.propose(running, limit), limit)

    def _allowed(self, running: RunningSequence, offer: Proposals, limit: int) -> Proposals:
        """The proposals as far as the answer's grammar allows them, with what it forces."""
        sequence, (tokens, odds) = running.sequence, offer
        if sequence.matcher is not None:
            return sequence.matcher.propose(offer, limit)
        count = len(tokens)
        if self._is_end is not None:
            count = next((at for at, token in enumerate(tokens) if self._is_end(token)), count)
        count = sequence.free_tokens(tokens[:count])
        return tokens[:count], odds[:count]

    def _ask(
        self,
        model: DraftModel,
        decoding: Sequence[RunningSequence],
        limits: Sequence[int],
        offers: list[Proposals],
    ) -> None:
        """Put the draft model's proposals in the place of those that are less likely."""
        count = len(decoding)
        more = self._costs.cost(count + 1) - self._costs.cost(count)
        least = MARGIN * count / self._costs.cost(count) * (more + self._draft_cost(model, count))
        asked = []
        for at, (running, (_, odds)) in enumerate(zip(decoding, offers, strict=True)):
            if limits[at] and model.odds(running, least) > (odds[0] if odds else 0.0):
                asked.append(at)
        found = model.propose([(decoding[at], limits[at]) for at in asked], least)
        for at, offer in zip(asked, found, strict=True):
            if offer[0]:
                offers[at] = self._allowed(decoding[at], offer, limits[at])

    def _draft_cost(self, model: DraftModel, sequences: int) -> float:
        """Of a token that the draft model proposes for one of so many sequences."""
        own_s, drafts_s = self._costs.token_s, model.costs.token_s
        if not own_s or drafts_s is None:
            return _DRAFT_STEP
        return drafts_s * model.costs.cost(sequences) / sequences / own_s
