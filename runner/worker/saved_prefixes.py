"""When prompts that were computed are saved for a later worker, and when saved ones are loaded.

What leaves the pool is copied into the swap anyway; a thread of its own writes these copies, part
by part, at the lowest priority. A prompt that has much more of its beginning saved than in memory
gets it as one more copy in the swap, whose state is in mapped files. Both only where it saves time:
by what computing a token has taken and what loading one takes. Once the daemon's side fails nothing
is saved or loaded any more.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from runner.backends.backend import Backend, BackendError, SavedParts
from runner.engine.swap import SwappedSequence
from runner.types import UNSAVED_SALT
from runner.worker.prefix_channel import ChannelError
from runner.worker.prefix_client import FoundPart, Owner, PartToSave, PrefixClient

log = logging.getLogger(__name__)

MIN_TOKENS = 64  # shorter prompts are neither looked for nor saved
LOAD_S = 0.03  # what loading takes besides its tokens: asking, and a step of the engine
MIN_GAIN = 2.0  # computing takes so many times as long as loading, or the prompt is not saved
MAX_WAITING = 64  # copies to be saved; the oldest one is dropped
LOWEST_PRIORITY = 19
_SMOOTHING = 0.3


@dataclass(slots=True)
class Rates:
    """Seconds that a token takes: to be computed, as the engine measures it, and to be loaded."""

    compute_s: Callable[[], float | None]
    load_s: float = 0.0  # 0: not measured yet

    def observe(self, tokens: int, duration_s: float) -> None:
        """So many tokens were loaded."""
        now = duration_s / tokens
        self.load_s = now if not self.load_s else self.load_s + _SMOOTHING * (now - self.load_s)

    def gain(self, tokens: int, compute_s: float | None) -> float:
        """How many times as long as loading them computing takes. compute_s: what it took once."""
        now = self.compute_s()
        token_s = now if now is not None else compute_s
        return 0.0 if token_s is None else tokens * token_s / (LOAD_S + tokens * self.load_s)


class PrefixLoader:
    """Loads what is saved. For one request at a time in each of its threads."""

    def __init__(self, client: PrefixClient, backend: Backend, rates: Rates) -> None:
        self._client = client
        self._backend = backend
        self._rates = rates
        self._is_on = True

    def load(self, tokens: array[int], owner: Owner, known: int) -> SwappedSequence | None:
        """The saved beginning of tokens, if loading it is faster than computing what of it is not
        in memory. known: how many tokens are."""
        if not self._is_on or len(tokens) <= known + MIN_TOKENS:
            return None
        try:
            found = self._client.find(tokens, owner)
            saved = sum(part.length for part in found)
            missing = saved - known
            if missing <= MIN_TOKENS or self._rates.gain(missing, found[0].token_s) <= 1.0:
                return None
            return self._read(tokens, owner, found)
        except ChannelError as error:
            log.warning("saved prefixes cannot be read any more: %s", error)
            self._is_on = False
            return None

    def _read(
        self, tokens: array[int], owner: Owner, found: Sequence[FoundPart]
    ) -> SwappedSequence | None:
        """Open one part after the other, for as long as that is faster than computing."""
        began_s, states, count = time.perf_counter(), [], 0
        for part in found:
            state = self._client.open(part.name)
            if state is None:
                break
            states.append(state)
            count += part.length
            took_s = time.perf_counter() - began_s
            self._rates.load_s = self._rates.load_s or took_s / count
            if took_s > LOAD_S + count * (self._rates.compute_s() or part.token_s):
                break
        if not states:
            return None
        self._rates.observe(count, time.perf_counter() - began_s)
        used = found[: len(states)]
        self._client.use([part.name for part in used])
        held = tokens[:count]
        held.extend(used[-1].rest)
        public = 0
        for part in used:
            if not (part.public and part.is_whole):
                break
            public += part.length
        joined = self._backend.join_parts(states, len(held))
        return SwappedSequence(
            held, len(held), joined, owner.salt, public, owner.adapters, mapped=True
        )


class PrefixSaver(threading.Thread):
    """Saves copies of sequences, the last one first."""

    def __init__(self, client: PrefixClient, backend: Backend, rates: Rates) -> None:
        super().__init__(name="prefixes", daemon=True)
        self._client = client
        self._rates = rates
        self._part_tokens = backend.capacity.part_tokens
        self._waiting: deque[SwappedSequence] = deque(maxlen=MAX_WAITING)
        self._changed = threading.Condition()
        self._job: Iterator[None] | None = None  # the copy that is being saved, part by part
        self._turn = threading.Lock()  # of who saves a part
        self._is_on = True

    def add(self, copy: SwappedSequence) -> None:
        """Save a copy some time, if that is worth it. From any thread."""
        able = self._is_on and isinstance(copy.state, SavedParts) and not _is_unsaved(copy)
        if not able or self._rates.gain(copy.computed, None) < MIN_GAIN:
            return
        with self._changed:
            self._waiting.append(copy)
            self._changed.notify()

    def flush(self, timeout_s: float) -> None:
        """Save what waits, for so long: at the priority of the thread that calls."""
        deadline_s = time.monotonic() + timeout_s
        while self._is_on and (self._job or self._waiting) and time.monotonic() < deadline_s:
            self._save_part()

    def run(self) -> None:
        """The loop."""
        if sys.platform.startswith("linux"):
            with contextlib.suppress(OSError):  # of this thread alone
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
        while self._is_on:
            with self._changed:
                self._changed.wait_for(lambda: self._job or self._waiting)
            self._save_part()

    def _save_part(self) -> None:
        with self._turn:
            try:
                if self._job is None and self._waiting:
                    self._job = self._save(self._waiting.pop())
                if self._job is not None and next(self._job, self) is self:
                    self._job = None
            except (ChannelError, BackendError) as error:
                log.warning("no prefixes are saved any more: %s", error)
                self._is_on, self._job = False, None
                self._waiting.clear()

    def _save(self, copy: SwappedSequence) -> Iterator[None]:
        """Save the parts that are not there yet, one for each turn."""
        assert isinstance(copy.state, SavedParts)
        owner = Owner(copy.salt, copy.adapters)
        states = copy.state.parts()
        size = self._part_tokens or copy.computed
        if len(states) != -(-copy.computed // size):
            return  # a copy in one piece, of a sequence with images
        asked = copy.tokens[: copy.computed]
        asked.append(0)  # one is left over
        done, parent = 0, ""
        for part in self._client.find(asked, owner):
            if part.is_whole and (done + part.length) % size == 0:
                done, parent = done + part.length, part.name
            elif done + part.length == copy.computed:
                return
        for start in range(done, copy.computed, size):
            end = min(start + size, copy.computed)
            part_to_save = PartToSave(
                parent,
                copy.tokens[start:end],
                public=end <= copy.public,
                whole=not self._part_tokens,
                token_s=self._rates.compute_s() or 0.0,
                state=states[start // size],
            )
            name = self._client.save(part_to_save, owner)
            if name is None:
                return
            parent = name
            yield


def _is_unsaved(copy: SwappedSequence) -> bool:
    """Short ones, those with images (tokens below 0), and those of requests that want it so (their
    salts are made by runner.server.leases.cache_salt)."""
    own_salt = (copy.salt or "").split(":", 2)[-1]
    return copy.computed < MIN_TOKENS or own_salt.startswith(UNSAVED_SALT) or min(copy.tokens) < 0


@dataclass(frozen=True, slots=True)
class SavedPrefixes:
    """Both, for one engine."""

    loader: PrefixLoader
    saver: PrefixSaver


def open_prefixes(
    channels: Sequence[socket.socket], backend: Backend, compute_s: Callable[[], float | None]
) -> SavedPrefixes | None:
    """Begin; None where the backend or the daemon has none."""
    capacity = backend.capacity
    if len(channels) < 2 or not (capacity.can_save and capacity.state_format):
        return None
    rates = Rates(compute_s)
    try:
        clients = [PrefixClient(channel, capacity.state_format) for channel in channels]
    except ChannelError as error:
        log.warning("there are no saved prefixes: %s", error)
        return None
    saver = PrefixSaver(clients[1], backend, rates)
    saver.start()
    return SavedPrefixes(PrefixLoader(clients[0], backend, rates), saver)
