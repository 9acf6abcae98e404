"""The engine under random rules: scheduler, pool, prefix cache and swap, with faults at every call
of the backend, against what each request answers alone."""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runner.backends.backend import (
    BackendError,
    Capacity,
    ImagePart,
    PoolFull,
    Row,
    RowFault,
    SampledToken,
    SavedState,
)
from runner.engine import scheduler as scheduler_module
from runner.engine import speculation as speculation_module
from runner.engine import swap as swap_module
from runner.engine.draft_model import DraftModel
from runner.engine.engine import Engine
from runner.engine.pool_growth import PoolGrowth
from runner.engine.prefix_cache import PrefixSource
from runner.engine.scheduler import Scheduler
from runner.engine.speculation import Speculation
from runner.engine.step_costs import StepCosts
from runner.engine.swap import SwapSpace
from runner.errors import InternalError
from runner.token_prefix import common_prefix
from runner.types import GenerateRequest, SamplingParams
from tests.fake_backend import (
    BOS,
    HASH,
    STATE_TOKEN_BYTES,
    VOCABULARY,
    FakeBackend,
    FakeState,
    FakeTokenizer,
)

# Images by the first of their numbers; between them lies one that is nobody's
PARTS = {
    first: ImagePart(np.zeros((count, 1), np.float32), count)
    for first, count in ((-1, 3), (-5, 9), (-15, 1), (-17, 30))
}

CONTEXT, PATIENCE, MAX_WAIT_STEPS = 140, 20, 1500
METHODS = ("step", "create_sampler", "share", "merge", "trim", "release", "state_bytes", "save",
           "load", "embed")  # fmt: skip
FAULTS = (BackendError, PoolFull, RuntimeError, MemoryError)


class Faulty(FakeBackend):
    """Fails where it is told to, before or after the work is done."""

    def __init__(self, capacity: Capacity) -> None:
        super().__init__(capacity)
        self.planned: dict[str, tuple[type[Exception], bool]] = {}
        self.fired = 0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in METHODS or name not in (planned := super().__getattribute__("planned")):
            return found

        def fail(*arguments: Any) -> None:
            error, late = planned.pop(name)
            self.fired += 1
            if late:
                found(*arguments)
            raise error(name)

        return fail


class Spoiling(Faulty):
    """Also gives no logits for a row, as told."""

    spoil = False

    def step(self, rows: Sequence[Row]) -> list[SampledToken]:
        large = [row for row in rows if len(row.tokens) > self.capacity.batch_tokens]
        beside = [row for row in rows if row not in large and len(row.tokens) > 1]
        assert len(large) <= 1
        assert not large or not beside, "what is over the budget is computed alone"
        try:
            sampled = super().step(rows)
        except PoolFull as error:
            raise AssertionError("the ledger promised room that was not there") from error
        if not self.spoil or not sampled:
            return sampled
        self.spoil, self.fired = False, self.fired + 1
        bad = sampled[0].sequence
        rest = [one for one in sampled if one.sequence != bad]
        raise RowFault("NaN", sampled=rest, sequences=[bad])

    def load(self, state: SavedState, sequence: int) -> None:
        try:
            super().load(state, sequence)
        except PoolFull as error:
            raise AssertionError("the ledger promised room that was not there") from error


class OftenRight(FakeBackend):
    """A draft model that is wrong about some tokens."""

    def step(self, rows: Sequence[Row]) -> list[SampledToken]:
        return [
            SampledToken(one.sequence, one.token if one.token % 3 else 97)
            for one in super().step(rows)
        ]


@dataclass(frozen=True)
class Sent:
    """A prompt, and who may know of it. keep: see request_of."""

    tokens: array[int]
    public: int
    salt: str | None
    keep: int | None

    def known_to(self, salt: str | None, tokens: array[int]) -> int:
        """How many of the first tokens those of a salt may find computed, by this one alone."""
        if salt != self.salt:
            return common_prefix(self.tokens, tokens, self.public)
        length = common_prefix(self.tokens, tokens, len(tokens))
        return len(tokens) if length == len(self.tokens) or self.keep is not None else length


@cache
def alone(tokens: tuple[int, ...], images: tuple[int, ...], fields: tuple[Any, ...]) -> str:
    """What a request answers when nobody else is there."""
    backend = FakeBackend(Capacity(1000, 1, CONTEXT, 200, VOCABULARY, 1, True))
    engine = Engine(backend, FakeTokenizer())
    parts = {first: PARTS[first] for first in images}
    engine.submit(request_of("alone", *fields), tokens, parts=parts)
    text = ""
    while engine.busy:
        outcome = engine.step()
        assert not outcome.errors
        text += "".join(delta.text for _, delta in outcome.deltas)
    return text


def request_of(id: str, max_tokens: int, seed: int, keep: int | None, **shares: Any) -> Any:
    sampling = SamplingParams(temperature=1.0, seed=seed)
    ignore = keep is not None  # so that there is something to shift
    return GenerateRequest(
        id, sampling, max_tokens=max_tokens, n_keep=keep, ignore_eos=ignore, **shares
    )


def verify_all(costs: StepCosts, odds: Sequence[Sequence[float]], max_total: int) -> list[int]:
    """As choose, where every proposal pays."""
    counts = []
    for own in odds:
        counts.append(min(len(own), max_total))
        max_total -= counts[-1]
    return counts


def speculation_of(drafts: str, slots: int) -> Speculation:
    """By a sequence's own past, or by a draft model with so many cells."""
    if drafts == "past":
        return Speculation(3)
    capacity = Capacity(int(drafts), slots, 100, 16, VOCABULARY, 1, True)
    return Speculation(3, DraftModel(OftenRight(capacity)))


def check_swap(swap: SwapSpace, budget_bytes: int) -> None:
    entries = swap.entries()
    assert swap.size_bytes == sum(entry.state.size_bytes for entry in entries) <= budget_bytes
    assert swap.tokens == sum(entry.computed for entry in entries)
    for entry in entries:
        assert isinstance(entry.state, FakeState)
        assert list(entry.state.tokens) == entry.tokens.tolist()


class EngineModel(RuleBasedStateMachine):
    """Requests by id: what they are, what they have said, how they ended."""

    @initialize(
        pool=st.sampled_from([140, 150, 200, 400]),
        slots=st.integers(1, 8),
        batch=st.sampled_from([8, 33, 64, 200]),
        idle=st.sampled_from([None, None, 0, 60]),
        sharing=st.sampled_from(["any", "any", "whole", "window"]),
        swap_tokens=st.sampled_from([0, 0, 130, 2000]),
        states=st.booleans(),
        drafts=st.sampled_from(["", "past", "30", "500"]),
        growth=st.sampled_from([0, 0, 300, 2000]),
    )
    def begin(
        self, pool: int, slots: int, batch: int, idle: int | None, sharing: str,
        swap_tokens: int, states: bool, drafts: str, growth: int,
    ) -> None:  # fmt: skip
        self.patches = ExitStack()
        for target, name, value in (
            (scheduler_module, "PATIENCE_STEPS", PATIENCE),
            (scheduler_module, "TURN_TOKENS", 4),
            (scheduler_module, "RESTORE_TOKENS", 4),
            (scheduler_module, "STATE_TOKENS", 12),
            (scheduler_module, "STATE_END_TOKENS", 4),
            (swap_module, "MIN_COPY_TOKENS", 4),
            (speculation_module, "choose", verify_all),
        ):
            self.patches.enter_context(patch.object(target, name, value))
        draft_tokens = batch if drafts and sharing != "whole" else 0
        capacity = Capacity(pool, slots, CONTEXT, batch, VOCABULARY, 1, sharing == "any",
                            window=sharing == "window", can_save=True, draft_tokens=draft_tokens,
                            hidden_states=states)  # fmt: skip
        self.backend = Spoiling(capacity)
        self.swap_bytes = swap_tokens * STATE_TOKEN_BYTES
        self.engine = Engine(
            self.backend,
            FakeTokenizer(),
            idle_tokens=idle,
            swap_bytes=self.swap_bytes,
            speculation=speculation_of(drafts, slots) if draft_tokens else None,
            clock=lambda: 0.0,
        )
        if growth:
            tries = itertools.count()
            self.scheduler.cache.growth = PoolGrowth(
                *(self.backend, growth, lambda tokens: tokens * (next(tries) % 3)),
                clock=lambda: 10.0 * next(tries),
            )
        self.asked: dict[str, Any] = {}  # what alone() takes; None: an embedding
        self.said: dict[str, str] = {}
        self.sent: dict[str, Sent] = {}
        self.open: set[str] = set()
        self.paused: set[str] = set()
        self.count = self.fired = 0

    @property
    def scheduler(self) -> Scheduler:
        return self.engine.scheduler

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        with self.patches:
            self.backend.planned.clear()
            for id in self.paused:
                self.engine.resume(id)
            self.paused.clear()
            for _ in range(5000):
                if not self.engine.busy:
                    break
                self._step()
                self.holds()
            assert not self.engine.busy
            assert not self.open, "these never ended"
            assert not self.scheduler.share._present
            assert self.scheduler.cache.pool.live == 0

    @rule(
        prefix=st.integers(0, 1),
        length=st.sampled_from([0, 1, 20, 40, 90]),
        tail=st.lists(st.integers(97, 99), max_size=5),
        images=st.lists(st.sampled_from(list(PARTS)), max_size=1).map(tuple),
        max_tokens=st.sampled_from([1, 2, 10, 40]),
        seed=st.integers(0, 2),
        keep=st.sampled_from([None, None, None, 4]),
        client=st.sampled_from("aabc"),
        priority=st.sampled_from([0, 0, 0, 1, -1, 1 << 30]),
        salt=st.sampled_from([None, None, "x", "y"]),
        public=st.sampled_from([0, 0, 15, 40, 1000]),
    )
    def submit(
        self, prefix: int, length: int, tail: list[int], images: tuple[int, ...], max_tokens: int,
        seed: int, keep: int | None, client: str, priority: int, salt: str | None, public: int,
    ) -> None:  # fmt: skip
        if len(self.open) > 40:
            return
        shared = [97 + (prefix * 7 + at) % 26 for at in range(length)]
        shown = [at for one in images for at in range(one, one - PARTS[one].tokens, -1)]
        tokens = (BOS, *shared, *shown, HASH, *tail)
        keep = None if images else keep
        fields = (max_tokens if keep is None else 100, seed, keep)
        id = self._begin((tokens, images, fields))
        public = min(public, len(tokens))
        self.sent[id] = Sent(array("i", tokens), public, salt, keep)
        request = request_of(id, *fields, client=client, priority=priority, cache_salt=salt,
                             public_tokens=public)  # fmt: skip
        self.engine.submit(request, tokens, parts={one: PARTS[one] for one in images})

    def _begin(self, asked: Any) -> str:
        id = f"r{self.count}"
        self.count += 1
        self.asked[id], self.said[id] = asked, ""
        self.open.add(id)
        return id

    @rule(
        inputs=st.lists(
            st.lists(st.integers(97, 99), min_size=1, max_size=8), min_size=1, max_size=4
        ),
        client=st.sampled_from("abd"),
    )
    def embed(self, inputs: list[list[int]], client: str) -> None:
        if len(self.open) <= 40:
            id = self._begin(None)
            for at, tokens in enumerate(inputs):
                self.sent[f"{id}.{at}"] = Sent(array("i", tokens), 0, None, None)
            self.engine.embed(GenerateRequest(id, client=client), inputs, truncate=True)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.open)))
        assert self.engine.cancel(id)
        self.open.remove(id)
        self.paused.discard(id)
        assert not self.engine.cancel(id)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.open)))
        if self.asked[id] is not None:
            self.engine.pause(id)
            self.paused.add(id)

    @precondition(lambda self: self.paused)
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.paused)))
        self.engine.resume(id)
        self.paused.remove(id)

    @rule(method=st.sampled_from(METHODS), error=st.sampled_from(FAULTS), late=st.booleans())
    def break_next(self, method: str, error: type[Exception], late: bool) -> None:
        if error is PoolFull or method in ("save", "load"):
            late = False  # these promise that nothing has changed
        self.backend.planned[method] = (error, late)

    @rule()
    def spoil_next(self) -> None:
        self.backend.spoil = True

    @rule(times=st.sampled_from([1, 1, 1, 5, 30]))
    def step(self, times: int) -> None:
        for _ in range(times):
            if self.engine.busy:
                self._step()

    def _step(self) -> None:
        outcome = self.engine.step()
        fired, self.fired = self.fired, self.backend.fired
        for id, delta in outcome.deltas:
            assert id in self.open - self.paused, f"{id} is heard after its end"
            self.said[id] += delta.text
            assert alone(*self.asked[id]).startswith(self.said[id])
            if delta.finish is not None:
                assert self.said[id] == alone(*self.asked[id])
                self._check_cached(id, delta.finish.usage.cached_tokens)
                self.open.remove(id)
        for id, _ in outcome.embeddings:
            self.open.remove(id)
        for id, error in outcome.errors:
            assert self.backend.fired > fired, f"{id} failed for nothing: {error!r}"
            assert isinstance(error, InternalError)
            self.open.remove(id)
            self.paused.discard(id)

    def _check_cached(self, id: str, cached: int) -> None:
        """Nobody begins with more than those of its salt have computed, or others made public."""
        own = self.sent[id]
        known = (
            one.known_to(own.salt, own.tokens) for other, one in self.sent.items() if other != id
        )
        assert cached <= max(known, default=0)

    def _check_public(self, entries: Iterable[PrefixSource]) -> None:
        for entry in entries:
            public = min(entry.public, entry.computed)
            known = (one.known_to("nobody", entry.tokens) for one in self.sent.values())
            assert not public or public <= max(known), "what is public nobody has made so"

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "engine") or self.engine._fault is not None:
            return  # the next step starts again
        scheduler, pool = self.scheduler, self.scheduler.cache.pool
        running = [*scheduler.decoding, *scheduler.prefilling]
        finished = list(scheduler.cache.prefixes.finished())
        slots = [one.slot for one in (*running, *finished)]
        free = scheduler.cache._free_slots
        assert sorted((*slots, *free)) == list(range(self.backend.capacity.max_sequences))
        assert pool.sequences() == set(slots)
        assert pool.used == self.backend.used <= pool.capacity_tokens
        for one in (*running, *finished):
            held = self.backend._sequences.get(one.slot)
            assert ([] if held is None else held.tokens) == list(one.tokens[: one.computed])
            assert pool.length(one.slot) == one.computed
        check_swap(scheduler.cache.swap, self.swap_bytes)
        self._check_public([*running, *finished, *scheduler.cache.swap.entries()])
        waiting = list(scheduler.waiting)
        share = scheduler.share
        assert share.running == Counter(one.client for one in running)
        sequences = Counter(one.client for one in (*running, *waiting))
        embeddings = Counter(one.client for one in self.engine._embeddings._waiting)
        assert share._present == sequences + embeddings
        here = {one.sequence.id for one in running} | {one.id for one in waiting}
        assert here | set(self.engine._paused) == set(self.engine._sequences)
        for one in waiting:
            assert scheduler._steps - one.queued_step < MAX_WAIT_STEPS, f"{one.id} starves"


quick = settings(
    max_examples=50,
    stateful_step_count=50,
    derandomize=True,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # shrinking takes minutes
    suppress_health_check=list(HealthCheck),
)


class TestEngineModel(EngineModel.TestCase):
    settings = quick


@pytest.mark.slow
class TestEngineModelOf100000Steps(EngineModel.TestCase):
    settings = settings(quick, max_examples=1000, stateful_step_count=100, derandomize=False)
