"""Sequences copied out of the cache and back go on as if they had stayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from runner.backends.backend import (
    Backend,
    BackendError,
    LoadedBackend,
    PoolFull,
    Row,
    SavedParts,
)
from runner.types import SamplingParams
from tests.fake_backend import FakeState

GREEDY = SamplingParams(temperature=0, logprobs=5)
TOKENS = [1, *(5 + (at * 37) % 250 for at in range(119))]

Open = Callable[..., LoadedBackend]
Trace = list[tuple[tuple[int, float], ...]]


@pytest.fixture
def backend(open_model: Open) -> Backend:
    return open_model(pool_tokens=512).backend


def go_on(backend: Backend, sequence: int, token: int, position: int, count: int = 12) -> Trace:
    """The likeliest tokens with their log-probabilities, after token and what follows it."""
    sampler = backend.create_sampler(GREEDY)
    trace: Trace = []
    for step in range(count):
        (sampled,) = backend.step([Row(sequence, [token], position + step, sampler)])
        trace.append(sampled.top)
        token = sampled.token
    sampler.close()
    return trace


def fill(backend: Backend, sequence: int, tokens: Sequence[int]) -> None:
    for start in range(0, len(tokens), 128):
        backend.step([Row(sequence, tokens[start : start + 128], start)])


def test_a_restored_sequence_gives_bit_equal_probabilities(backend: Backend) -> None:
    fill(backend, 0, TOKENS)
    state = backend.save(0)
    assert 0 <= state.size_bytes - backend.state_bytes(0) < 1024
    expected = go_on(backend, 0, 77, len(TOKENS))
    backend.release(0)
    backend.load(state, 0)
    assert go_on(backend, 0, 77, len(TOKENS)) == expected


def test_it_may_come_back_under_another_id_in_scattered_cells_that_others_had(
    backend: Backend,
) -> None:
    fill(backend, 0, TOKENS)
    state = backend.save(0)
    expected = go_on(backend, 0, 77, len(TOKENS), 5)
    backend.reset()
    for position in range(180):
        backend.step([Row(3, [9], position), Row(4, [8], position)])
    backend.release(3)
    backend.load(state, 7)
    restored = go_on(backend, 7, 77, len(TOKENS), 5)
    for one, other in zip(restored, expected, strict=True):
        assert [token for token, _ in one] == [token for token, _ in other]
        assert dict(one) == pytest.approx(dict(other), abs=0.005)  # cells in another order


def test_a_copy_can_be_used_in_part_and_more_than_once(backend: Backend) -> None:
    fill(backend, 0, TOKENS[:50])
    expected = go_on(backend, 0, 77, 50)
    backend.reset()
    fill(backend, 0, TOKENS)
    state = backend.save(0)
    backend.reset()
    for sequence in (2, 5):
        backend.load(state, sequence)
        assert backend.trim(sequence, 50)
        assert [top[0][0] for top in go_on(backend, sequence, 77, 50)] == [
            top[0][0] for top in expected
        ]


def test_a_copy_of_a_sequence_that_shares_its_cells_is_whole(backend: Backend) -> None:
    fill(backend, 0, TOKENS[:80])
    backend.share(0, 1, 80)
    backend.step([Row(1, TOKENS[80:], 80)])
    state = backend.save(1)
    expected = go_on(backend, 1, 77, len(TOKENS))
    backend.reset()
    backend.load(state, 0)
    assert go_on(backend, 0, 77, len(TOKENS)) == expected


def test_merged_tokens_take_their_room_once_and_change_nothing(backend: Backend) -> None:
    fill(backend, 0, TOKENS)
    state = backend.save(0)
    expected = go_on(backend, 0, 77, len(TOKENS), 5)
    assert backend.trim(0, len(TOKENS))
    for sequence in range(1, 12):
        backend.load(state, sequence)
        backend.merge(0, sequence, 100)
    restored = go_on(backend, 11, 77, len(TOKENS), 5)
    assert [top[0][0] for top in restored] == [top[0][0] for top in expected]
    with pytest.raises(BackendError, match="merge"):
        backend.merge(0, 12, 100)


def test_without_room_nothing_changes(backend: Backend) -> None:
    fill(backend, 0, TOKENS)
    state = backend.save(0)
    backend.load(state, 1)
    backend.load(state, 2)
    backend.load(state, 3)
    with pytest.raises(PoolFull):
        backend.load(state, 4)
    expected = go_on(backend, 1, 77, len(TOKENS), 3)
    assert [t[0][0] for t in go_on(backend, 2, 77, len(TOKENS), 3)] == [t[0][0] for t in expected]
    backend.release(3)
    backend.load(state, 4)


def test_parts_of_several_sequences_make_one_that_goes_on_bit_equal(backend: Backend) -> None:
    step = backend.capacity.part_tokens
    tokens = [1, *(5 + (at * 37) % 250 for at in range(step + 60))]
    fill(backend, 0, [*tokens[:step], 9, 9, 9])
    first = backend.save(0)
    backend.release(0)
    fill(backend, 1, tokens)
    second = backend.save(1)
    expected = go_on(backend, 1, 77, len(tokens), 5)
    assert isinstance(first, SavedParts)
    assert isinstance(second, SavedParts)
    assert bytes(first.parts()[0]) == bytes(second.parts()[0])
    parts = [memoryview(bytes(part)) for part in (first.parts()[0], second.parts()[1])]
    backend.reset()
    backend.load(backend.join_parts(parts, len(tokens)), 2)
    assert go_on(backend, 2, 77, len(tokens), 5) == expected
    backend.reset()
    with pytest.raises(PoolFull, match="could not restore"):
        backend.load(backend.join_parts(parts[:1], len(tokens)), 2)
    fill(backend, 3, TOKENS)
    assert backend.save(3).size_bytes > 0


def test_what_cannot_be_saved_or_loaded_is_refused(backend: Backend) -> None:
    with pytest.raises(BackendError, match="empty"):
        backend.save(0)
    fill(backend, 0, TOKENS)
    state = backend.save(0)
    with pytest.raises(BackendError, match="must be empty"):
        backend.load(state, 0)
    with pytest.raises(BackendError, match="no sequence 99"):
        backend.load(state, 99)
    with pytest.raises(BackendError, match="FakeState"):
        backend.load(FakeState((1,), (1,)), 1)


def test_the_state_of_a_recurrent_model_comes_back_whole(open_model: Open) -> None:
    backend = open_model({"architecture": "mamba"}).backend
    fill(backend, 0, TOKENS)
    state = backend.save(0)
    expected = go_on(backend, 0, 77, len(TOKENS))
    backend.release(0)
    fill(backend, 0, TOKENS[:20])
    backend.load(state, 3)
    assert go_on(backend, 3, 77, len(TOKENS)) == expected


@pytest.mark.parametrize("options", [{"kv_cache_type": "q8_0"}, {"flash_attention": False}])
def test_other_layouts_of_the_cache_are_copied_as_well(
    open_model: Open, options: dict[str, object]
) -> None:
    backend = open_model({"width": 128}, **options).backend
    fill(backend, 0, TOKENS)
    state = backend.save(0)
    expected = go_on(backend, 0, 77, len(TOKENS))
    backend.release(0)
    backend.load(state, 0)
    assert go_on(backend, 0, 77, len(TOKENS)) == expected
