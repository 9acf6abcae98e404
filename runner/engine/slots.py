"""Which sequence a slot held last, so that it can be saved, restored and erased.

A slot is a number that requests give. All share one cache: what a slot holds is looked for among
the finished sequences of the same salt, and no others. What comes back is a copy in the swap.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from runner.backends.backend import Backend, BackendError, WritableState
from runner.engine.kv_cache import KvCache
from runner.engine.prefix_cache import FinishedSequence
from runner.engine.swap import SwappedSequence
from runner.errors import InvalidRequest, Unsupported
from runner.token_prefix import common_prefix
from runner.types import Adapters

MAX_SLOTS = 256  # of all salts; the one that was used first is forgotten
Key = tuple[str | None, int]  # salt and number


@dataclass(frozen=True, slots=True)
class SlotContent:
    """The tokens that a slot holds computed, the adapters with which they were, and the backend's
    part."""

    tokens: array[int]
    adapters: Adapters
    state: WritableState


class Slots:
    """The slots of one engine."""

    def __init__(self, backend: Backend, cache: KvCache) -> None:
        self._backend = backend
        self._cache = cache
        self._held: dict[Key, tuple[array[int], Adapters]] = {}

    def note(self, key: Key, tokens: array[int], adapters: Adapters) -> None:
        """A sequence begins in the slot; tokens grows while it runs."""
        if not 0 <= key[1] < self._backend.capacity.max_sequences:
            return
        self._held.pop(key, None)
        if len(self._held) >= MAX_SLOTS:
            del self._held[next(iter(self._held))]
        self._held[key] = tokens, adapters

    def save(self, key: Key) -> SlotContent:
        """What the slot holds. Raises InvalidRequest when that is nothing, Unsupported when it
        cannot be taken elsewhere, BackendError."""
        entry = self._entry(key)
        if entry is None:
            raise InvalidRequest(
                f"slot {key[1]} holds nothing: send a request with id_slot {key[1]} first",
                param="id",
            )
        tokens = entry.tokens[: entry.computed]
        if any(token < 0 for token in tokens):
            raise Unsupported(f"slot {key[1]} holds an image: only slots of text can be saved")
        if isinstance(entry, SwappedSequence):
            state = entry.state
        else:
            state = self._backend.save(entry.slot)
        if not isinstance(state, WritableState):
            raise Unsupported("slots of models on this backend cannot be saved; use a GGUF model")
        return SlotContent(tokens, entry.adapters, state)

    def new_state(self, size_bytes: int, tokens: int) -> WritableState:
        """Memory for a state to restore. Raises Unsupported, InvalidRequest for more than the
        copies of this model may take."""
        budget = self._cache.swap.budget_bytes
        if not 0 < size_bytes <= budget:
            raise InvalidRequest(
                f"the slot takes {size_bytes} bytes; copies outside the cache of this model may"
                f" take {budget}"
            )
        try:
            return self._backend.empty_state(size_bytes, tokens)
        except BackendError as error:
            raise Unsupported(f"the slot cannot be restored: {error}") from error

    def restore(self, key: Key, content: SlotContent) -> None:
        """The slot holds content. Raises InvalidRequest when there is no room for it."""
        tokens = content.tokens
        salt, count = key[0], len(tokens)
        copy = SwappedSequence(tokens, count, content.state, salt, adapters=content.adapters)
        if not self._cache.swap.add(copy):
            raise InvalidRequest(f"there is no room for the {count} tokens of the slot")
        self.note(key, tokens, content.adapters)

    def erase(self, key: Key) -> int:
        """Drop what the slot holds, wherever it is kept; gives the number of its tokens."""
        erased = 0
        while (entry := self._entry(key)) is not None and self._shared(key, entry) >= erased:
            erased = self._shared(key, entry)
            self._cache.drop(entry)
        self._held.pop(key, None)
        return erased

    def _entry(self, key: Key) -> FinishedSequence | SwappedSequence | None:
        """What holds most of the slot's tokens, and least besides."""
        found = [entry for entry in self._cache.idle() if self._shared(key, entry)]
        return max(found, key=lambda e: (self._shared(key, e), -e.computed), default=None)

    def _shared(self, key: Key, entry: FinishedSequence | SwappedSequence) -> int:
        """How many of the slot's tokens entry has; 0 for one that only begins like them. The last
        token of an answer is not computed."""
        tokens, adapters = self._held.get(key, (array("i"), ()))
        if entry.salt != key[0] or entry.adapters != adapters:
            return 0
        length = common_prefix(entry.tokens, tokens, entry.computed)
        return length if length >= min(entry.computed, len(tokens) - 1) else 0
