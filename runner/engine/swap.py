"""Finished sequences outside the pool: copies in the machine's own memory.

Every decode row attends over all cells in use, so what idles in the pool makes all others slower;
a copy costs memory only, and is back in a hundredth of the time that computing it takes. The
least recently used copies go first. The module knows the backend, but no pool, ids or queues.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from runner.backends.backend import Backend, BackendError, SavedState
from runner.engine.prefix_cache import (
    FinishedSequence,
    PrefixMatch,
    PrefixSharing,
    is_superseded,
)
from runner.types import Adapters

log = logging.getLogger(__name__)

MIN_COPY_TOKENS = 16  # a copy that gives less is not made, or not kept: it takes 2 ms, computing 50
MAX_COPIES = 256  # each is compared with each new prompt
MAX_STEP_BYTES = 64 << 20  # once a step has copied as many, the next copy waits; about 20 ms
CHEAP_COPY_S = 0.020  # a copy that takes no longer is not weighed
EXPECTED_USE = 0.25  # of the copies, guessed: a copy may take so much of what computing again would
MEASURED_BYTES = 4 << 20  # smaller copies tell nothing of how fast memory is
RETRY_DECAY = 0.9  # of the time a byte takes, at each copy that is not made: one is tried again


@dataclass(slots=True, eq=False)
class SwappedSequence:
    """A copy. Its tokens are all computed."""

    tokens: array[int]
    computed: int
    state: SavedState
    salt: str | None = None
    public: int = 0
    adapters: Adapters = ()
    prompt: int | None = None
    mapped: bool = False  # its state is in files, and takes no memory that is missed

    @property
    def held_bytes(self) -> int:
        """The memory that is free once it goes."""
        return 0 if self.mapped else self.state.size_bytes


class SwapSpace:
    """The copies, within a budget of bytes."""

    def __init__(
        self,
        backend: Backend,
        sharing: PrefixSharing,
        budget_bytes: int,
        token_s: Callable[[], float | None] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """budget_bytes 0: nothing is copied, nor if the backend cannot. token_s: the seconds that
        computing a token again takes; None: not known."""
        self.budget_bytes = budget_bytes if backend.capacity.can_save else 0
        self.size_bytes = 0
        self.tokens = 0
        self._backend = backend
        self._sharing = sharing
        self._entries: dict[SwappedSequence, None] = {}  # in order of use, the oldest first
        self._step_bytes = 0
        self._token_s = token_s
        self._clock = clock
        self._byte_s: float | None = None  # seconds that copying a byte takes
        self.on_copy: Callable[[SwappedSequence], None] = lambda _: None  # called with each new one

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[SwappedSequence]:
        """The copies, the least recently used first."""
        return list(self._entries)

    @property
    def ready(self) -> bool:
        """False: this step has copied enough, what can wait shall."""
        return self._step_bytes < MAX_STEP_BYTES

    def begin_step(self) -> None:
        """A new step may copy again."""
        self._step_bytes = 0

    def longest_match(
        self, tokens: array[int], salt: str | None = None, adapters: Adapters = ()
    ) -> PrefixMatch[SwappedSequence] | None:
        """The copy that holds most of the beginning of tokens. At least one token is left
        over."""
        best: PrefixMatch[SwappedSequence] | None = None
        for entry in self._entries:
            length = self._sharing.usable(entry, tokens, salt, adapters)
            if length and (best is None or length >= best.length):
                best = PrefixMatch(entry, length)
        return best

    def copy(self, entry: FinishedSequence, elsewhere: int) -> None:
        """Copy an entry that is about to leave the pool, if that is worth it and within the
        budget. elsewhere: how many of its first tokens stay in the pool."""
        if not self.budget_bytes:
            return
        known = max((self._sharing.shared(old, entry) for old in self._entries), default=0)
        missing = entry.computed - max(known, elsewhere)
        size_bytes = self._backend.state_bytes(entry.slot)
        if missing < MIN_COPY_TOKENS or not self._pays(missing, size_bytes):
            return
        self._drop_covered(entry)
        if not self._make_room(size_bytes):
            return
        began_s = self._clock()
        try:
            state = self._backend.save(entry.slot)
        except BackendError as error:
            log.warning("%d cached tokens were dropped: %s", entry.computed, error)
            return
        self._measure(state.size_bytes, self._clock() - began_s)
        copy = SwappedSequence(
            entry.tokens,
            entry.computed,
            state,
            salt=entry.salt,
            public=entry.public,
            adapters=entry.adapters,
            prompt=entry.prompt,
        )
        self._keep(copy)
        self.on_copy(copy)
        self._step_bytes += state.size_bytes

    def add(self, copy: SwappedSequence) -> bool:
        """Keep a copy that was made elsewhere. False: the budget is too small for it."""
        self._drop_covered(copy)
        if not copy.mapped and not self.budget_bytes:
            return False
        if not self._make_room(copy.held_bytes):
            return False
        self._keep(copy)
        return True

    def restore(self, entry: SwappedSequence, slot: int) -> bool:
        """Put a copy into the pool under a free id. False: the backend refuses, the id is still
        empty and the copy is gone."""
        try:
            self._backend.load(entry.state, slot)
        except BackendError as error:
            log.warning("%d cached tokens cannot be restored: %s", entry.computed, error)
            self.forget(entry)
            return False
        self._step_bytes += entry.state.size_bytes
        return True

    def use(self, entry: SwappedSequence, length: int, salt: str | None) -> None:
        """The first length tokens of a copy are in the pool now, for a prompt of salt. It is kept
        only if the rest is worth it."""
        if entry.computed - length < MIN_COPY_TOKENS or is_superseded(entry, length, salt):
            self.forget(entry)
        elif entry in self._entries:
            self._entries[entry] = self._entries.pop(entry)

    def forget(self, entry: SwappedSequence) -> None:
        """Drop a copy, if it is still kept."""
        if entry not in self._entries:
            return
        del self._entries[entry]
        self.size_bytes -= entry.held_bytes
        self.tokens -= entry.computed

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self.size_bytes = self.tokens = 0

    def _keep(self, copy: SwappedSequence) -> None:
        self._entries[copy] = None
        self.size_bytes += copy.held_bytes
        self.tokens += copy.computed

    def _pays(self, missing: int, size_bytes: int) -> bool:
        """Whether a copy is worth the time for which all wait for it. Memory that a virtual machine
        has not touched yet takes seven times as long to write: 200 ms for 600 tokens of Qwen3
        0.6B, of which 85 were not elsewhere."""
        token_s = self._token_s()
        if self._byte_s is None or token_s is None:
            return True
        pause_s = self._byte_s * size_bytes
        if pause_s <= max(CHEAP_COPY_S, EXPECTED_USE * missing * token_s):
            return True
        self._byte_s *= RETRY_DECAY
        return False

    def _measure(self, size_bytes: int, duration_s: float) -> None:
        if size_bytes >= MEASURED_BYTES:
            now = duration_s / size_bytes
            self._byte_s = now if self._byte_s is None else (self._byte_s + now) / 2

    def _drop_covered(self, entry: FinishedSequence | SwappedSequence) -> None:
        for old in [old for old in self._entries if self._sharing.covers(entry, old)]:
            self.forget(old)

    def _make_room(self, size_bytes: int) -> bool:
        if size_bytes > self.budget_bytes:
            return False
        while self.size_bytes + size_bytes > self.budget_bytes or len(self) >= MAX_COPIES:
            self.forget(next(iter(self._entries)))
        return True
