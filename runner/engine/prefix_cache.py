"""Which sequences hold which tokens, so that a new one can begin where another already is.

Every sequence in the backend's cache, running or finished, can be a source for sequences with the
same salt. Without the salt nobody can learn from the time of an answer what others have asked.
Other sequences may use its public tokens only. What was computed with other adapters, or other
scales of them, is never shared. A match is made by comparing the tokens themselves, never a hash.
Finished sequences stay, the least recently used ones go first. The cache knows neither the backend
nor the pool: it names sequences by their id.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from runner.engine.images import whole_image_length
from runner.token_prefix import common_prefix
from runner.types import Adapters


class PrefixSource(Protocol):
    """A sequence whose first computed tokens others may have, those of another salt no more than
    public ones. What comes after the first prompt tokens is an answer; None: it is not known what
    is."""

    tokens: array[int]
    computed: int
    salt: str | None
    public: int
    adapters: Adapters

    @property
    def prompt(self) -> int | None:
        """See above."""


class SlotSource(PrefixSource, Protocol):
    """A source that is in the backend's cache, under the id slot."""

    slot: int


SourceT = TypeVar("SourceT", bound=PrefixSource)


@dataclass(slots=True, eq=False)
class FinishedSequence:
    """A finished sequence that is kept for its tokens."""

    slot: int
    tokens: array[int]
    computed: int
    salt: str | None = None
    public: int = 0
    adapters: Adapters = ()
    prompt: int | None = None


@dataclass(frozen=True, slots=True)
class PrefixMatch(Generic[SourceT]):
    """The first length tokens are those of source."""

    source: SourceT
    length: int


def is_superseded(source: PrefixSource, length: int, salt: str | None) -> bool:
    """Whether a prompt of salt that begins with the first length tokens of a finished source goes
    on from all that was asked there: what is left of source is an answer that its client sends back
    as other tokens, as may happen in every turn of a conversation, so it will not be used again."""
    return source.prompt is not None and source.salt == salt and length >= source.prompt


def _open(source: PrefixSource, salt: str | None, adapters: Adapters) -> int:
    """How many of the source's first tokens those of a salt may have, computed so or not yet."""
    if source.adapters != adapters:
        return 0
    return len(source.tokens) if source.salt == salt else source.public


def common_tokens(
    source: PrefixSource, tokens: array[int], salt: str | None, adapters: Adapters
) -> int:
    """How much of the beginning of tokens, but not all of it, source holds, whether the backend
    can give it or not."""
    limit = min(_open(source, salt, adapters), source.computed, len(tokens) - 1)
    return common_prefix(source.tokens, tokens, limit)


@dataclass(frozen=True, slots=True)
class PrefixSharing:
    """What the backend can make of a source. partial False: it can only be used as a whole.
    block_size: lengths of matches are multiples of it, except for whole sources."""

    partial: bool = True
    block_size: int = 1

    def usable(
        self,
        source: PrefixSource,
        tokens: array[int],
        salt: str | None = None,
        adapters: Adapters = (),
        least: int | None = None,
    ) -> int:
        """How much of the beginning of tokens, but not all of it, source gives. least: where it is
        not partial, how much it must be now; None: all of source."""
        least = 0 if self.partial else source.computed if least is None else least
        length = common_tokens(source, tokens, salt, adapters)
        if least <= length < source.computed:
            length = whole_image_length(tokens, length - length % self.block_size)
        return length if length >= least else 0

    def shared(self, outer: PrefixSource, inner: PrefixSource) -> int:
        """How many of inner's first tokens can be had from outer in inner's place."""
        known = _open(outer, inner.salt, inner.adapters)
        limit = min(known, outer.computed, inner.computed)
        if not self.partial and limit < outer.computed:
            return 0
        length = common_prefix(outer.tokens, inner.tokens, limit)
        return length if self.partial or length == limit else 0

    def covers(self, outer: PrefixSource, inner: PrefixSource) -> bool:
        """True when every use of inner can be had from outer."""
        return outer.public >= inner.public and self.shared(outer, inner) == inner.computed


class PrefixCache:
    """Running and finished sequences by their tokens."""

    def __init__(
        self,
        sharing: PrefixSharing | None = None,
        min_share: Callable[[int], int] | None = None,
    ) -> None:
        """sharing: what matches may be; None: anything. min_share: of a sequence that is not
        partial, how many of its first tokens others must have now at least; None: all."""
        self._min_share = min_share
        self._sharing = PrefixSharing() if sharing is None else sharing
        self._running: dict[int, SlotSource] = {}
        self._finished: dict[int, FinishedSequence] = {}  # in order of use, the oldest first

    def __len__(self) -> int:
        return len(self._finished)

    def finished(self) -> Iterator[FinishedSequence]:
        """Finished sequences, the least recently used first."""
        return iter(list(self._finished.values()))

    def is_running(self, source: SlotSource) -> bool:
        """True for a running sequence of this cache."""
        return self._running.get(source.slot) is source

    def add(self, source: SlotSource) -> None:
        """A sequence runs."""
        self._running[source.slot] = source

    def remove(self, slot: int) -> None:
        """Forget the tokens of an id."""
        self._running.pop(slot, None)
        self._finished.pop(slot, None)

    def finish(self, slot: int) -> list[int]:
        """The running sequence ends and stays in the cache. Returns the ids that hold nothing of
        value now, because another sequence holds the same tokens; they may include slot. The
        caller releases and removes them."""
        kept = self.keep(self._running.pop(slot), slot)
        covers = self._sharing.covers
        if kept.computed == 0 or any(covers(other, kept) for other in self._others(kept)):
            return [slot]
        return [id for id, old in self._finished.items() if old is not kept and covers(kept, old)]

    def keep(self, source: SlotSource, slot: int) -> FinishedSequence:
        """What is computed of the source stays, under an id that has it too."""
        kept = self._finished[slot] = FinishedSequence(
            slot,
            source.tokens[: source.computed],
            source.computed,
            salt=source.salt,
            public=min(source.public, source.computed),
            adapters=source.adapters,
            prompt=source.prompt,
        )
        return kept

    def sources(self) -> Iterator[SlotSource]:
        """All sequences, the running ones first."""
        yield from self._running.values()
        yield from self._finished.values()

    def clear(self) -> None:
        """Forget everything."""
        self._running.clear()
        self._finished.clear()

    def oldest(self, besides: SlotSource | None = None) -> FinishedSequence | None:
        """The finished sequence that was used least recently, other than besides."""
        return next((entry for entry in self._finished.values() if entry is not besides), None)

    def longest_match(
        self, tokens: array[int], salt: str | None = None, adapters: Adapters = ()
    ) -> PrefixMatch[SlotSource] | None:
        """The source that holds most of the beginning of tokens. At least one token is left
        over, since only computing one gives the logits of the next."""
        best: PrefixMatch[SlotSource] | None = None
        for source in self.sources():
            length = self._sharing.usable(source, tokens, salt, adapters, self._least(source))
            if length and (best is None or length >= best.length):
                best = PrefixMatch(source, length)
        if best is not None and best.source.slot in self._finished:
            slot = best.source.slot  # it is the most recently used one now
            self._finished[slot] = self._finished.pop(slot)
        return best

    def has_lost(self, match: PrefixMatch[SlotSource]) -> bool:
        """Whether its source gives less of its beginning than that by now."""
        least = self._least(match.source)
        return least is not None and match.length < least

    def _least(self, source: SlotSource) -> int | None:
        """See PrefixSharing.usable."""
        return None if self._min_share is None else self._min_share(source.slot)

    def known(self, tokens: array[int], salt: str | None, adapters: Adapters) -> int:
        """How many of the first tokens a source gives now. Changes nothing, and may be asked from
        any thread, where it is a guess."""
        sources = [*list(self._running.values()), *list(self._finished.values())]
        usable = self._sharing.usable
        return max((usable(source, tokens, salt, adapters) for source in sources), default=0)

    def ahead(
        self, tokens: array[int], salt: str | None = None, adapters: Adapters = ()
    ) -> PrefixMatch[SlotSource] | None:
        """The running source that will hold most of the beginning of tokens once all that it
        knows now is computed, if it does not hold it yet."""
        best: PrefixMatch[SlotSource] | None = None
        if not self._sharing.partial and self._min_share is None:
            return None
        for source in self._running.values():
            if source.computed + 1 >= len(source.tokens):
                continue
            limit = min(_open(source, salt, adapters), len(tokens) - 1)
            if limit <= source.computed:
                continue
            length = whole_image_length(tokens, common_prefix(source.tokens, tokens, limit))
            if length > source.computed and (best is None or length > best.length):
                best = PrefixMatch(source, length)
        return best

    def elsewhere(self, entry: FinishedSequence) -> int:
        """How many of the entry's first tokens other sequences give."""
        return max((self._sharing.shared(o, entry) for o in self._others(entry)), default=0)

    def _others(self, entry: FinishedSequence) -> Iterator[SlotSource]:
        return (source for source in self.sources() if source is not entry)
