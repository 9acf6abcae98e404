from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import pytest

from runner.backends.backend import Capacity, SavedState
from runner.engine.engine import Engine
from runner.engine.slots import MAX_SLOTS, SlotContent
from runner.errors import InvalidRequest, Unsupported
from runner.types import GenerateRequest
from tests.fake_backend import VOCABULARY, FakeBackend, FakeState, FakeTokenizer

SALT = "salt"


@dataclass
class Portable:
    """A state with bytes, beside what the fake backend wants."""

    inner: FakeState
    size_bytes: int = 8
    data: bytearray = field(default_factory=lambda: bytearray(8))

    def memory(self) -> memoryview:
        return memoryview(self.data)


class Writable(FakeBackend):
    def save(self, sequence: int) -> Portable:  # type: ignore[override]
        return Portable(super().save(sequence))

    def load(self, state: SavedState, sequence: int) -> None:
        assert isinstance(state, Portable)
        super().load(state.inner, sequence)


def engine_of(kind: type[FakeBackend] = Writable, swap_bytes: int = 1 << 20) -> Engine:
    capacity = Capacity(4000, 16, 1000, 512, VOCABULARY, 1, True, True)
    return Engine(kind(capacity), FakeTokenizer(), swap_bytes=swap_bytes, clock=lambda: 0.0)


def cached(engine: Engine, tokens: list[int], slot: int | None = None, salt: str = SALT) -> int:
    """How many tokens of a prompt were found computed."""
    request = GenerateRequest(str(len(tokens)), max_tokens=3, cache_salt=salt, slot=slot)
    engine.submit(request, tokens)
    finishes = []
    while engine.busy:
        finishes += [delta.finish for _, delta in engine.step().deltas if delta.finish]
    return finishes[0].usage.cached_tokens


PROMPT = [97] * 60


def test_what_was_saved_is_found_in_another_engine_under_the_same_salt_only() -> None:
    first, second = engine_of(), engine_of()
    cached(first, PROMPT, slot=2)
    content = first.slots.save((SALT, 2))
    assert content.tokens[:60].tolist() == PROMPT
    second.slots.restore((SALT, 5), content)
    assert second.slots.save((SALT, 5)).tokens == content.tokens
    assert cached(second, PROMPT, salt="other") == 0
    assert cached(second, PROMPT) == 59


def test_a_slot_holds_what_ran_in_it_last_and_nothing_that_only_begins_alike() -> None:
    engine = engine_of()
    cached(engine, PROMPT, slot=1)
    cached(engine, [97] * 10 + [98] * 40, slot=1)
    assert engine.slots.save((SALT, 1)).tokens[:50].tolist() == [97] * 10 + [98] * 40
    assert engine.slots.erase((SALT, 1)) > 50
    engine.slots.note((SALT, 1), array("i", [97] * 10 + [99] * 9), ())
    with pytest.raises(InvalidRequest, match="slot 1 holds nothing"):
        engine.slots.save((SALT, 1))


@pytest.mark.parametrize("key", [(SALT, 0), ("other", 1), (None, 1)])
def test_a_slot_of_another_number_or_salt_holds_nothing(key: tuple[str | None, int]) -> None:
    engine = engine_of()
    cached(engine, PROMPT, slot=1)
    with pytest.raises(InvalidRequest, match="holds nothing"):
        engine.slots.save(key)
    assert engine.slots.erase(key) == 0
    assert cached(engine, PROMPT) == 59


def test_what_is_erased_is_nowhere_any_more() -> None:
    engine = engine_of()
    cached(engine, PROMPT, slot=1)
    engine.slots.restore((SALT, 1), engine.slots.save((SALT, 1)))  # a copy besides
    assert engine.slots.erase((SALT, 1)) >= 60
    assert cached(engine, PROMPT) == 0
    assert engine.scheduler.cache.pool.used == 62


def test_a_state_is_no_larger_than_copies_may_be() -> None:
    slots = engine_of(swap_bytes=1000).slots
    for size in (0, -1, 1001):
        with pytest.raises(InvalidRequest, match="may take 1000"):
            slots.new_state(size, 1)
    state = Portable(FakeState(tuple(PROMPT), (0,) * 60), size_bytes=1001)
    content = SlotContent(array("i", PROMPT), (), state)
    with pytest.raises(InvalidRequest, match="no room"):
        slots.restore((SALT, 0), content)


def test_a_backend_whose_states_have_no_bytes_is_refused_by_name() -> None:
    engine = engine_of(FakeBackend)
    cached(engine, PROMPT, slot=1)
    with pytest.raises(Unsupported, match="cannot be saved"):
        engine.slots.save((SALT, 1))
    with pytest.raises(Unsupported, match="cannot be restored"):
        engine.slots.new_state(10, 1)


def test_slots_are_not_remembered_without_bound() -> None:
    engine = engine_of()
    cached(engine, PROMPT, slot=10_000)
    for number in range(MAX_SLOTS + 1):
        engine.slots.note((f"salt {number}", 0), array("i"), ())
    assert len(engine.slots._held) == MAX_SLOTS
