"""A sequence that is in the batch.

Exists from admission until the sequence ends or gives up its place to be computed again later.
"""

from __future__ import annotations

from array import array

from runner.backends.backend import Row
from runner.engine.prefix_cache import PrefixSource
from runner.engine.sequence import Sequence


class RunningSequence:
    """tokens[:computed] are in the backend's cache under the id slot. row computes the next token
    once the prompt is computed, and is kept from step to step. state_ends: numbers of tokens, in
    order, at each of which what is computed is kept for later prompts."""

    __slots__ = (
        *("adapters", "computed", "public", "row", "state_ends"),
        *("salt", "sequence", "slot", "tokens"),
    )

    def __init__(
        self,
        sequence: Sequence,
        slot: int,
        computed: int = 0,
        source: PrefixSource | None = None,
    ) -> None:
        """computed: the number of tokens shared with source. Its public tokens stay public if all
        of them are shared: nobody may learn how many of them a client has sent."""
        self.sequence = sequence
        self.slot = slot
        self.computed = computed
        self.tokens: array[int] = sequence.tokens  # the same array
        self.salt = sequence.salt
        self.adapters = sequence.adapters
        self.public = sequence.public
        if source is not None and computed >= source.public:
            self.public = max(self.public, source.public)
        self.state_ends: tuple[int, ...] = ()
        self.row = Row(
            *(slot, sequence.last, computed, sequence.sampler, sequence.matcher),
            adapters=sequence.adapters,
        )

    @property
    def id(self) -> str:
        """The request's."""
        return self.sequence.id

    @property
    def client(self) -> str:
        """Whose it is."""
        return self.sequence.client

    @property
    def prompt(self) -> int | None:
        """How many of its tokens are the prompt's; None: some have left."""
        shift = self.sequence.shift
        return None if shift is not None and shift.shifted else self.sequence.prompt_length

    @property
    def pending(self) -> int:
        """Tokens that are not computed yet; never 0 between two steps."""
        return len(self.tokens) - self.computed

    def chunk(self, count: int) -> Row:
        """The row that computes the next count tokens, and samples when they are the last."""
        sequence, start, end = self.sequence, self.computed, self.computed + count
        scores, images = sequence.prompt_logprobs, sequence.images
        last = end == len(self.tokens) and not sequence.prompt_only
        return Row(
            self.slot,
            self.tokens[start:end].tolist(),
            start,
            sequence.sampler if last else None,
            sequence.matcher,
            None if scores is None else scores.targets(start, count),
            image=None if images is None else images.at(start),
            hidden=sequence.hidden if end == len(self.tokens) else None,
            adapters=sequence.adapters,
        )
