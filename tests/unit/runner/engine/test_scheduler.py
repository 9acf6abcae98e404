"""What the scheduler puts into a step. test_engine_model.py has it under random load."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.backends.backend import (
    Capacity,
    Row,
    SampledToken,
)
from runner.engine.engine import Engine
from runner.engine.pacer import ALONE_STEP_S
from runner.types import GenerateRequest
from tests.fake_backend import (
    VOCABULARY,
    FakeBackend,
    FakeTokenizer,
)
from tests.properties import examples


@given(st.integers(2, 12), st.integers(1, 60), st.sampled_from([8, 32, 100]), st.integers(1, 8))
@examples(30)
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
