"""The scheduler under random load, with the echo backend as oracle: it refuses every row that
does not continue what is in its cache, and in hash mode each token depends on all before it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from runner.backends.backend import (
    BackendError,
    Capacity,
    ImagePart,
    PoolFull,
    Row,
    SampledToken,
    SavedState,
)
from runner.engine import scheduler as scheduler_module
from runner.engine import swap as swap_module
from runner.engine.engine import Engine
from runner.engine.pacer import ALONE_STEP_S
from runner.engine.speculation import DraftModel, DraftTimings, PromptLookup, Speculation
from runner.engine.swap import SwapSpace
from runner.types import Delta, GenerateRequest, SamplingParams
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


@dataclass(frozen=True)
class Arrival:
    """A request of the load: when it comes, what it shares, when it is cancelled."""

    step: int
    prefix: int
    prefix_length: int
    tail: tuple[int, ...]
    max_tokens: int
    priority: int
    cancel_after: int | None
    seed: int
    seen: tuple[int, ...] = ()  # images after the first half of what is shared
    shown: tuple[int, ...] = ()  # images in the end

    @property
    def tokens(self) -> list[int]:
        shared = [97 + (self.prefix * 7 + i) % 26 for i in range(self.prefix_length)]
        half = len(shared) // 2
        shared[half:half] = _numbers(self.seen)
        return [BOS, *shared, HASH, *self.tail, *_numbers(self.shown)]

    @property
    def parts(self) -> dict[int, ImagePart]:
        return {first: PARTS[first] for first in (*self.seen, *self.shown)}


def _numbers(images: Sequence[int]) -> list[int]:
    return [at for first in images for at in range(first, first - PARTS[first].tokens, -1)]


arrivals = st.builds(
    Arrival,
    step=st.integers(0, 25),
    prefix=st.integers(0, 2),
    prefix_length=st.sampled_from([0, 1, 5, 20, 40, 70, 120]),
    tail=st.lists(st.integers(97, 99), max_size=6).map(tuple),
    max_tokens=st.sampled_from([1, 2, 10, 50, 80]),
    priority=st.sampled_from([0, 0, 0, 1, -1]),
    cancel_after=st.one_of(st.none(), st.none(), st.integers(0, 20)),
    seed=st.integers(0, 3),
)


images = st.lists(st.sampled_from(list(PARTS)), max_size=2).map(tuple)
arrivals_with_images = st.builds(
    Arrival,
    step=st.integers(0, 25),
    prefix=st.integers(0, 1),
    prefix_length=st.sampled_from([0, 1, 5, 20]),
    tail=st.lists(st.integers(97, 99), max_size=4).map(tuple),
    max_tokens=st.sampled_from([1, 2, 10]),
    priority=st.sampled_from([0, 0, 0, 1, -1]),
    cancel_after=st.one_of(st.none(), st.none(), st.integers(0, 20)),
    seed=st.integers(0, 3),
    seen=images,
    shown=images,
)


@dataclass(frozen=True)
class Machine:
    """The sizes of a backend."""

    pool: int
    sequences: int
    batch: int
    idle: int | None
    partial: bool
    swap_tokens: int = 0  # what the swap's budget holds
    worth_tokens: int = swap_module.MIN_COPY_TOKENS
    step_bytes: int = swap_module.MAX_STEP_BYTES
    refuse_every: int = 0  # the backend refuses each so-manieth load of a copy
    draft: int = 0  # tokens proposed for a sequence
    whole_copies: bool = False
    draft_pool: int | None = None  # of the draft model; None: the sequence's own past proposes

    @property
    def capacity(self) -> Capacity:
        return Capacity(
            self.pool,
            self.sequences,
            140,
            self.batch,
            VOCABULARY,
            1,
            self.partial,
            can_save=True,
            whole_copies=self.whole_copies,
            draft_tokens=self.batch if self.draft and self.partial else 0,
        )

    @property
    def speculation(self) -> Speculation | None:
        if not self.draft:
            return None
        if self.draft_pool is None:
            return Speculation(PromptLookup(), self.draft)
        capacity = Capacity(self.draft_pool, self.sequences, 100, 16, VOCABULARY, 1, True)
        return Speculation(DraftModel(OftenRight(capacity)), self.draft)


machines = st.builds(
    Machine,
    pool=st.sampled_from([140, 145, 160, 200, 400]),
    sequences=st.integers(1, 8),
    batch=st.sampled_from([8, 16, 33, 64, 200]),
    idle=st.sampled_from([None, None, 0, 60]),
    partial=st.sampled_from([True, True, False]),
)
swapping_machines = st.builds(
    Machine,
    pool=st.sampled_from([140, 160, 200, 400]),
    sequences=st.integers(1, 8),
    batch=st.sampled_from([8, 33, 64, 200]),
    idle=st.sampled_from([None, 0, 0, 60]),
    partial=st.sampled_from([True, True, True, False]),
    swap_tokens=st.sampled_from([20, 130, 300, 2000]),
    worth_tokens=st.sampled_from([1, 8, 64]),
    step_bytes=st.sampled_from([1, 1000, 1 << 20]),
    refuse_every=st.sampled_from([0, 0, 3]),
    whole_copies=st.booleans(),
)


drafting_machines = st.builds(
    Machine,
    pool=st.sampled_from([140, 160, 200, 400]),
    sequences=st.integers(1, 8),
    batch=st.sampled_from([8, 33, 64, 200]),
    idle=st.sampled_from([None, 0, 60]),
    partial=st.just(True),
    swap_tokens=st.sampled_from([0, 300]),
    worth_tokens=st.just(8),
    draft=st.sampled_from([1, 3, 8]),
    draft_pool=st.sampled_from([None, 30, 90, 500]),
)


machines_for_images = st.builds(
    Machine,
    pool=st.sampled_from([160, 200, 400]),
    sequences=st.integers(1, 8),
    batch=st.sampled_from([8, 16, 33, 200]),
    idle=st.sampled_from([None, 0, 60]),
    partial=st.sampled_from([True, True, True, False]),
    swap_tokens=st.sampled_from([0, 130, 2000]),
    worth_tokens=st.sampled_from([1, 8]),
    draft=st.sampled_from([0, 0, 3]),
    draft_pool=st.sampled_from([None, 90]),
    whole_copies=st.booleans(),
)


class OftenRight(FakeBackend):
    """A draft model that is wrong about some tokens."""

    def step(self, rows: Sequence[Row]) -> list[SampledToken]:
        return [
            SampledToken(one.sequence, one.token if one.token % 3 else 97)
            for one in super().step(rows)
        ]


class Checked(FakeBackend):
    """Checks each batch against what was decoding before it."""

    def __init__(self, capacity: Capacity, refuse_every: int = 0) -> None:
        super().__init__(capacity)
        self.rows: list[tuple[int, int]] = []
        self.loads = 0
        self.saves = 0
        self.confirmed = 0
        self._refuse_every = refuse_every

    def step(self, rows: Sequence[Row]) -> list[SampledToken]:
        self.rows = [(row.sequence, len(row.tokens)) for row in rows]
        large = [row for row in rows if len(row.tokens) > self.capacity.batch_tokens]
        beside = [row for row in rows if row not in large and len(row.tokens) > 1]
        assert len(large) <= 1
        assert not large or not beside, "what is over the budget is computed alone"
        try:
            return super().step(rows)
        except PoolFull as error:
            raise AssertionError("the ledger promised room that was not there") from error

    def save(self, sequence: int) -> FakeState:
        self.saves += 1
        return super().save(sequence)

    def load(self, state: SavedState, sequence: int) -> None:
        self.loads += 1
        if self._refuse_every and self.loads % self._refuse_every == 0:
            raise BackendError("refused")
        try:
            super().load(state, sequence)
        except PoolFull as error:
            raise AssertionError("the ledger promised room that was not there") from error


def request_of(id: str, arrival: Arrival) -> GenerateRequest:
    return GenerateRequest(
        id,
        SamplingParams(temperature=1.0, seed=arrival.seed),
        max_tokens=arrival.max_tokens,
        priority=arrival.priority,
    )


def alone(arrival: Arrival) -> str:
    """What the request answers when nobody else is there."""
    engine = Engine(FakeBackend(Capacity(500, 1, 140, 200, VOCABULARY, 1, True)), FakeTokenizer())
    engine.submit(request_of("alone", arrival), arrival.tokens, parts=arrival.parts)
    text = ""
    while engine.busy:
        outcome = engine.step()
        assert not outcome.errors
        text += "".join(delta.text for _, delta in outcome.deltas)
    return text


@given(machines, st.lists(arrivals, min_size=1, max_size=12))
@settings(max_examples=120, derandomize=True, deadline=None)
def test_every_request_answers_as_if_it_were_alone(machine: Machine, load: list[Arrival]) -> None:
    check(machine, load)


@given(swapping_machines, st.lists(arrivals, min_size=1, max_size=12))
@settings(max_examples=150, derandomize=True, deadline=None)
def test_a_swap_changes_no_answer_and_keeps_its_budget(
    machine: Machine, load: list[Arrival]
) -> None:
    with (
        patch.object(swap_module, "MIN_COPY_TOKENS", machine.worth_tokens),
        patch.object(swap_module, "MAX_STEP_BYTES", machine.step_bytes),
        patch.object(scheduler_module, "RESTORE_TOKENS", machine.worth_tokens),
    ):
        backend = check(machine, load)
    event(f"copies restored: {min(backend.loads, 3)}")


@given(drafting_machines, st.lists(arrivals, min_size=1, max_size=12))
@settings(max_examples=150, derandomize=True, deadline=None)
def test_drafts_change_no_answer(machine: Machine, load: list[Arrival]) -> None:
    with (
        patch.object(swap_module, "MIN_COPY_TOKENS", machine.worth_tokens),
        patch.object(DraftTimings, "drafting", lambda self, rows: rows > 0),
    ):
        backend = check(machine, load)
    event(f"tokens confirmed: {min(backend.confirmed, 3)}")


@given(machines_for_images, st.lists(arrivals_with_images, min_size=1, max_size=10))
@settings(max_examples=100, derandomize=True, deadline=None)
def test_images_change_no_answer_and_are_never_cut(machine: Machine, load: list[Arrival]) -> None:
    with (
        patch.object(swap_module, "MIN_COPY_TOKENS", machine.worth_tokens),
        patch.object(scheduler_module, "RESTORE_TOKENS", machine.worth_tokens),
        patch.object(DraftTimings, "drafting", lambda self, rows: rows > 0),
    ):
        backend = check(machine, load)
    event(f"copies restored: {min(backend.loads, 3)}")


def check(machine: Machine, load: list[Arrival]) -> Checked:
    """Run the load; at each step the ledger is right and the swap within its budget, in the end
    each answer is that of the request alone."""
    backend = Checked(machine.capacity, machine.refuse_every)
    swap_bytes = machine.swap_tokens * STATE_TOKEN_BYTES
    engine = Engine(
        backend,
        FakeTokenizer(),
        idle_tokens=machine.idle,
        swap_bytes=swap_bytes,
        speculation=machine.speculation,
        clock=lambda: 0.0,
    )
    scheduler, pool = engine.scheduler, engine.scheduler.cache.pool
    deltas: dict[str, list[Delta]] = {}
    cancelled: set[str] = set()
    step = 0
    while engine.busy or step <= 25:
        assert step < 3000, "the engine does not come to an end"
        for index, arrival in enumerate(load):
            if arrival.step == step:
                engine.submit(request_of(f"r{index}", arrival), arrival.tokens, parts=arrival.parts)
            wait = arrival.cancel_after
            if wait is not None and step == arrival.step + wait and engine.cancel(f"r{index}"):
                cancelled.add(f"r{index}")
        decoding = {running.id: running.slot for running in scheduler.decoding}
        preemptions = scheduler.preemptions
        outcome = engine.step()
        assert not outcome.errors
        for id, delta in outcome.deltas:
            assert id not in cancelled
            deltas.setdefault(id, []).append(delta)
        if scheduler.preemptions == preemptions:
            assert {(slot, 1) for slot in decoding.values()} <= set(backend.rows) or not decoding
        assert pool.used == backend.used <= machine.pool
        check_swap(scheduler.cache.swap, swap_bytes)
        step += 1
    assert engine.counters.cancelled == len(cancelled)
    for index, arrival in enumerate(load):
        if f"r{index}" not in cancelled:
            text = "".join(delta.text for delta in deltas[f"r{index}"])
            assert text == alone(arrival)
            assert deltas[f"r{index}"][-1].finish is not None
    assert pool.live == 0
    assert pool.sequences() == {entry.slot for entry in scheduler.cache.prefixes.finished()}
    assert machine.idle is None or pool.used <= machine.idle
    if engine.speculation is not None:
        backend.confirmed = engine.speculation.confirmed
    return backend


def check_swap(swap: SwapSpace, budget_bytes: int) -> None:
    entries = swap.entries()
    assert swap.size_bytes == sum(entry.state.size_bytes for entry in entries) <= budget_bytes
    assert swap.tokens == sum(entry.computed for entry in entries)
    for entry in entries:
        assert isinstance(entry.state, FakeState)
        assert list(entry.state.tokens) == entry.tokens.tolist()


@given(st.integers(2, 12), st.integers(1, 60), st.sampled_from([8, 32, 100]), st.integers(1, 8))
@settings(max_examples=60, derandomize=True, deadline=None)
def test_first_tokens_of_equal_requests_come_in_order_of_arrival(
    count: int, length: int, batch: int, sequences: int
) -> None:
    backend = FakeBackend(Capacity(300, sequences, 140, batch, VOCABULARY, 1, True))
    engine = Engine(backend, FakeTokenizer(), clock=lambda: 0.0)
    for index in range(count):
        tokens = [97 + index] * length
        engine.submit(GenerateRequest(f"r{index}", max_tokens=3), tokens)
    first: list[str] = []
    while engine.busy:
        first += [id for id, _ in engine.step().deltas if id not in first]
    assert first == [f"r{index}" for index in range(count)]


def test_a_recurrent_model_reuses_whole_sequences_only() -> None:
    backend = FakeBackend(Capacity(500, 4, 200, 200, VOCABULARY, 1, False))
    engine = Engine(backend, FakeTokenizer())

    def answer(id: str, tokens: list[int]) -> int:
        before = backend.computed_tokens
        engine.submit(GenerateRequest(id, max_tokens=1), tokens)
        while engine.busy:
            assert not engine.step().errors
        return backend.computed_tokens - before

    assert answer("a", [97] * 50) == 50
    assert answer("b", [97] * 60) == 10
    assert answer("c", [97] * 55) == 5
    assert answer("d", [97] * 49 + [98]) == 50


def test_an_admitted_prompt_has_room_before_later_ones_are_admitted() -> None:
    backend = FakeBackend(Capacity(200, 8, 200, 150, VOCABULARY, 1, True))
    engine = Engine(backend, FakeTokenizer(), clock=lambda: 0.0)
    engine.submit(GenerateRequest("a", max_tokens=5), [97] * 120)
    engine.submit(GenerateRequest("b", max_tokens=5), [98] * 120)
    while engine.busy:
        assert not engine.step().errors
        assert engine.scheduler.running <= 1
    assert engine.scheduler.preemptions == 0


def test_the_first_prompts_of_a_crowd_are_not_held_up_by_the_last() -> None:
    backend = FakeBackend(Capacity(2000, 8, 200, 512, VOCABULARY, 1, True))
    engine = Engine(backend, FakeTokenizer(), clock=lambda: 0.0)
    for index in range(6):
        engine.submit(GenerateRequest(f"r{index}", max_tokens=9), [97 + index] * 70)
    assert [id for id, _ in engine.step().deltas] == ["r0", "r1"]  # 140 tokens are enough
    assert engine.scheduler.prefilling == []
    engine.step()  # a small chunk of the third, beside those that stream
    assert [id for id, _ in engine.step().deltas] == ["r0", "r1", "r2"]


def test_a_prompt_that_fills_a_step_is_not_cut_short() -> None:
    backend = FakeBackend(Capacity(2000, 8, 600, 256, VOCABULARY, 1, True))
    engine = Engine(backend, FakeTokenizer(), clock=lambda: 0.0)
    engine.submit(GenerateRequest("long", max_tokens=1), [97] * 250)
    engine.submit(GenerateRequest("later", max_tokens=1), [98] * 10)
    assert [id for id, _ in engine.step().deltas] == ["long"]


@pytest.mark.parametrize(
    ("limit_s", "slowdown", "aim_s"), [(120.0, 100, ALONE_STEP_S), (24.0, 20, 2.0)]
)
def test_steps_of_a_long_prompt_shrink_with_a_machine_that_becomes_slow(
    limit_s: float, slowdown: int, aim_s: float
) -> None:
    backend = FakeBackend(Capacity(9000, 8, 9000, 512, VOCABULARY, 1, True))
    now_s, token_s, computed, durations = 0.0, 0.001, 0, []
    engine = Engine(backend, FakeTokenizer(), clock=lambda: now_s)
    engine.stay_within(limit_s)
    engine.submit(GenerateRequest("long", max_tokens=1), [97] * 8000)
    compute = backend.step

    def step(rows: Sequence[Row]) -> list[SampledToken]:
        nonlocal now_s, computed
        tokens = sum(len(row.tokens) for row in rows)
        computed += tokens
        durations.append(tokens * (token_s if computed < 3000 else slowdown * token_s))
        now_s += durations[-1]
        return compute(rows)

    backend.step = step  # type: ignore[method-assign]
    while engine.busy:
        engine.step()
    quiet, busy = durations[1:6], durations[6:-1]
    assert quiet == [pytest.approx(0.512)] * 5
    assert max(busy[1:]) <= aim_s * 2
    assert all(later <= earlier for earlier, later in itertools.pairwise(busy))
    assert busy[-1] <= aim_s * 1.1
