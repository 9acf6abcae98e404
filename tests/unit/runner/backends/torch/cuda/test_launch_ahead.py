"""Steps begun before the last one was read, over an echo backend that can: the same outcome of
every step as without, whatever arrives, ends, fails or is cancelled meanwhile."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.backends.backend import BackendError, Capacity, PoolFull, Row, RowFault, SampledToken
from runner.backends.torch.cuda.launch_ahead import LaunchAheadBackend, PendingStep, launch_ahead
from runner.engine.engine import Engine, StepOutput
from runner.types import GenerateRequest, SamplingParams
from tests.fake_backend import (
    BOS,
    HASH,
    RAISE,
    STATE_TOKEN_BYTES,
    VOCABULARY,
    FakeBackend,
    FakeSampler,
    FakeTokenizer,
)
from tests.properties import examples

FAULTS = 41  # one in so many hashes makes a row give no usable logits


class Flawed(FakeBackend):
    """An echo backend some of whose rows are at fault, by what is in the cache. events: what it
    was asked for, in order."""

    def __init__(self, capacity: Capacity, *, flawed: bool = True) -> None:
        super().__init__(capacity)
        self.flawed = flawed
        self.events: list[str] = []

    def step(self, rows: Sequence[Row]) -> list[SampledToken]:
        self.events.append("step")
        return self.computed(rows)

    def computed(self, rows: Sequence[Row]) -> list[SampledToken]:
        sampled = super().step(rows)
        faulty = [one.sequence for one in sampled if self._is_faulty(one.sequence)]
        if faulty:
            sound = [one for one in sampled if one.sequence not in faulty]
            raise RowFault("NaN", sampled=sound, sequences=faulty)
        return sampled

    def _is_faulty(self, sequence: int) -> bool:
        cached = self._sequences[sequence]
        return self.flawed and HASH in cached.tokens and cached.hashes[-1] % FAULTS == 0


class Launcher(Flawed):
    """One whose steps can be begun. Their tokens are told when they are collected."""

    launches = True

    def follows(self, row: Row) -> bool:
        return isinstance(row.sampler, FakeSampler) and row.sampler.logprobs is None

    def launch(self, rows: Sequence[Row], after: PendingStep | None) -> PendingStep:
        assert after is None or isinstance(after, Begun)
        self.events.append("begin" if after is None else "chain")
        return Begun(self, rows, after)


class Begun:
    def __init__(self, backend: Launcher, rows: Sequence[Row], after: Begun | None) -> None:
        if after is not None:
            rows = [
                Row(row.sequence, (after.tokens[row.sequence],), row.position, row.sampler)
                for row in rows
            ]
        self.tokens: dict[int, int] = {}
        self._backend = backend
        self._rows = {row.sequence: row for row in rows}
        self._states = {row.sequence: _random_of(row).getstate() for row in rows}
        self._fault: RowFault | None = None
        try:
            sampled = backend.computed(rows)
        except RowFault as fault:
            self._fault, sampled = fault, list(fault.sampled)
        except PoolFull:
            raise
        except BackendError:
            for row in rows:
                self.drop(row.sequence)
            raise
        # What follows a token that cannot be used is of no use either, but it is computed.
        self.tokens = dict.fromkeys(self._rows, 0) | {one.sequence: one.token for one in sampled}
        self._sampled = sampled

    def collect(self) -> list[SampledToken]:
        self._backend.events.append("collect")
        sampled = [one for one in self._sampled if one.sequence in self._rows]
        if self._fault is not None:
            faulty = [one for one in self._fault.sequences if one in self._rows]
            if faulty:
                raise RowFault("NaN", sampled=sampled, sequences=faulty)
        return sampled

    def drop(self, sequence: int) -> None:
        row = self._rows.pop(sequence)
        _random_of(row).setstate(self._states[sequence])
        self._backend.trim(sequence, row.position)


def _random_of(row: Row) -> random.Random:
    assert isinstance(row.sampler, FakeSampler)
    return row.sampler._random or random.Random(0)


class Letters:
    """A grammar: so many small letters, or the end."""

    def __init__(self, most: int) -> None:
        self.left = most
        self.complete = False

    def bits(self) -> bytes:
        bits = bytearray((VOCABULARY + 7) // 8)
        for token in (*range(97, 123), 257):
            bits[token >> 3] |= 1 << (token & 7)
        return bytes(bits)

    def accept(self, token: int) -> None:
        self.left -= 1
        self.complete = self.left <= 0


@dataclass(frozen=True)
class Arrival:
    """A request of a history."""

    step: int
    shared: int
    tail: tuple[int, ...]
    hashed: bool
    max_tokens: int
    stop: tuple[str, ...]
    temperature: float
    logprobs: int | None
    grammar: int | None
    priority: int
    cancel_after: int | None

    @property
    def tokens(self) -> list[int]:
        start = [97 + i % 26 for i in range(self.shared)]
        return [BOS, *start, *([HASH] if self.hashed else ()), *self.tail]


arrivals = st.builds(
    Arrival,
    step=st.integers(0, 20),
    shared=st.sampled_from([1, 5, 20, 60]),
    tail=st.lists(st.sampled_from([97, 98, 99, RAISE]), min_size=1, max_size=4).map(tuple),
    hashed=st.booleans(),
    max_tokens=st.sampled_from([1, 2, 10, 40]),
    stop=st.sampled_from([(), (), ("b",), ("cd", "xy")]),
    temperature=st.sampled_from([0.0, 1.0]),
    logprobs=st.sampled_from([None, None, None, 2]),
    grammar=st.sampled_from([None, None, None, 5]),
    priority=st.sampled_from([0, 0, 1]),
    cancel_after=st.one_of(st.none(), st.none(), st.integers(0, 15)),
)


def submit(engine: Engine, id: str, arrival: Arrival) -> None:
    sampling = SamplingParams(
        temperature=arrival.temperature, seed=len(arrival.tail), logprobs=arrival.logprobs
    )
    request = GenerateRequest(
        id,
        sampling,
        max_tokens=arrival.max_tokens,
        stop=arrival.stop,
        priority=arrival.priority,
    )
    matcher = None if arrival.grammar is None else Letters(arrival.grammar)
    engine.submit(request, arrival.tokens, matcher=matcher)


def outcomes(
    backend: FakeBackend, history: Sequence[Arrival], swap_tokens: int
) -> list[StepOutput]:
    """What each step of a history gave."""
    engine = Engine(
        launch_ahead(backend),
        FakeTokenizer(),
        swap_bytes=swap_tokens * STATE_TOKEN_BYTES,
        clock=lambda: 0.0,
    )
    found: list[StepOutput] = []
    at = 0
    last = max(arrival.step for arrival in history)
    while engine.busy or at <= last:
        for number, arrival in enumerate(history):
            if arrival.step == at:
                submit(engine, f"r{number}", arrival)
            if arrival.cancel_after is not None and arrival.step + arrival.cancel_after == at:
                engine.cancel(f"r{number}")
        found.append(engine.step())
        at += 1
        assert at < 3000, "the engine does not come to an end"
    return found


def capacity_of(pool: int = 400, sequences: int = 6, batch: int = 64) -> Capacity:
    return Capacity(pool, sequences, 140, batch, VOCABULARY, 1, True, can_save=True)


def said(outcome: StepOutput) -> object:
    errors = [(id, type(error), error.message) for id, error in outcome.errors]
    return outcome.deltas, errors


@examples(40)
@given(
    history=st.lists(arrivals, min_size=1, max_size=8),
    pool=st.sampled_from([150, 200, 400]),
    sequences=st.sampled_from([1, 3, 6]),
    batch=st.sampled_from([8, 64]),
    swap_tokens=st.sampled_from([0, 200]),
)
def test_every_step_gives_what_it_gives_without(
    history: list[Arrival], pool: int, sequences: int, batch: int, swap_tokens: int
) -> None:
    capacity = capacity_of(pool, sequences, batch)
    plain, ahead = Flawed(capacity), Launcher(capacity)
    expected = outcomes(plain, history, swap_tokens)
    found = outcomes(ahead, history, swap_tokens)
    assert [said(one) for one in found] == [said(one) for one in expected]


def request_of(max_tokens: int, tail: int = 97) -> Arrival:
    return Arrival(0, 60, (tail,), False, max_tokens, (), 0.0, None, None, 0, None)


def run(backend: Flawed, *requests: Arrival) -> LaunchAheadBackend | None:
    """Step an engine through requests; what launches ahead in it."""
    engine = Engine(launch_ahead(backend), FakeTokenizer(), clock=lambda: 0.0)
    for number, request in enumerate(requests):
        submit(engine, f"r{number}", request)
    while engine.busy:
        engine.step()
    found = engine._backend
    return found if isinstance(found, LaunchAheadBackend) else None


def test_a_step_is_begun_before_the_one_before_it_is_read() -> None:
    backend = Launcher(capacity_of(), flawed=False)
    ahead = run(backend, request_of(40))
    assert ahead is not None
    # The prompt's step, a step from its token, and from then on each from the device's token.
    assert backend.events[:6] == ["step", "begin", "chain", "collect", "chain", "collect"]
    assert "step" not in backend.events[1:]
    launches = ahead.launches
    assert launches.chained == launches.begun - 1
    assert launches.kept == launches.begun - 1  # the one behind the end is not read


def test_prompts_that_come_do_not_undo_what_is_begun() -> None:
    backend = Launcher(capacity_of(), flawed=False)
    engine = Engine(launch_ahead(backend), FakeTokenizer(), clock=lambda: 0.0)
    submit(engine, "a", request_of(30))
    for _ in range(4):
        engine.step()
    submit(engine, "b", request_of(30, tail=98))
    backend.events.clear()
    engine.step()
    assert backend.events == ["step", "collect", "begin"]  # of b alone, of a, of both
    assert isinstance(engine._backend, LaunchAheadBackend)
    assert engine._backend.launches.dropped == 0


def test_rows_that_need_the_host_are_not_begun() -> None:
    for request in (
        replace(request_of(20), logprobs=2),
        replace(request_of(20), grammar=9),
    ):
        backend = Launcher(capacity_of(), flawed=False)
        ahead = run(backend, request)
        assert ahead is not None
        assert ahead.launches.begun == 0


def test_nothing_is_begun_where_the_cache_is_full() -> None:
    backend = Launcher(Capacity(70, 1, 70, 70, VOCABULARY, 1, True), flawed=False)
    ahead = run(backend, request_of(20))
    assert ahead is not None
    assert backend.used <= 70
    assert ahead.launches.begun < 20


def test_a_sequence_that_is_cancelled_leaves_nothing_behind() -> None:
    backend = Launcher(capacity_of(), flawed=False)
    engine = Engine(launch_ahead(backend), FakeTokenizer(), clock=lambda: 0.0)
    submit(engine, "a", request_of(30))
    for _ in range(3):
        engine.step()
    engine.cancel("a")
    submit(engine, "b", request_of(5))
    while engine.busy:
        engine.step()
    kept = {finished.computed for finished in engine.scheduler.cache.prefixes.finished()}
    held = {len(backend.tokens(slot)) for slot in backend._sequences}
    assert held <= kept | {length + 1 for length in kept}  # the step behind b's end is in flight


def test_a_backend_that_cannot_or_does_not_is_left_as_it_is() -> None:
    plain = Flawed(capacity_of())
    assert launch_ahead(plain) is plain
    idle = Launcher(capacity_of())
    idle.launches = False
    assert launch_ahead(idle) is idle


def test_a_reset_forgets_what_is_in_flight() -> None:
    backend = Launcher(capacity_of(), flawed=False)
    ahead = launch_ahead(backend)
    sampler = ahead.create_sampler(SamplingParams(temperature=0.0))
    [first] = ahead.step([Row(0, [BOS, HASH, 97], 0, sampler)])
    ahead.reset()
    with pytest.raises(BackendError, match="row at position 3"):
        ahead.step([Row(0, [first.token], 3, sampler)])
