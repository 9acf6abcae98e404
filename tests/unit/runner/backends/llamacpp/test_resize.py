"""A cache made larger holds what it held: every probability is that of a large cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runner.backends.backend import Backend, BackendError, LoadedBackend, Row
from runner.backends.llamacpp.context import Context
from runner.types import SamplingParams

GREEDY = SamplingParams(temperature=0, logprobs=5)
TOKENS = [1, *(5 + (at * 37) % 250 for at in range(199))]

Open = Callable[..., LoadedBackend]
Trace = list[list[tuple[tuple[int, float], ...]]]


@pytest.fixture(autouse=True)
def together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether rows are computed together is a matter of time, and changes floats of 32 bits."""
    monkeypatch.setattr("runner.backends.llamacpp.small_batches.MAX_ROWS", 1)


def answers(backend: Backend, grow_at: tuple[int, ...] = ()) -> Trace:
    """The likeliest tokens of three sequences, two of which share a prefix. grow_at: the steps
    before which the cache doubles."""
    backend.step([Row(0, TOKENS, 0), Row(2, TOKENS[50:], 0)])
    backend.release(2)  # holes in the cache
    backend.share(0, 1, 120)
    backend.step([Row(3, TOKENS[:90], 0)])
    samplers = {slot: backend.create_sampler(GREEDY) for slot in (0, 1, 3)}
    lengths, tokens = {0: 200, 1: 120, 3: 90}, dict.fromkeys(samplers, 77)
    trace: Trace = []
    for step in range(24):
        if step in grow_at:
            backend.grow(2 * backend.capacity.pool_tokens)
        rows = [Row(slot, [tokens[slot]], lengths[slot], samplers[slot]) for slot in samplers]
        sampled = backend.step(rows)
        for one in sampled:
            tokens[one.sequence] = one.token
            lengths[one.sequence] += 1
        trace.append([one.top for one in sampled])
    return trace


@pytest.mark.parametrize("cache_type", ["f16", "q8_0"])
def test_nothing_changes_while_the_cache_grows(open_model: Open, cache_type: str) -> None:
    fields = {"kv_cache_type": cache_type, "max_pool_tokens": 2048, "batch_tokens": 512}
    small = open_model({"width": 128}, pool_tokens=512, **fields).backend
    large = open_model({"width": 128}, pool_tokens=2048, **fields).backend
    assert answers(small, grow_at=(3, 17)) == answers(large)
    assert small.capacity.pool_tokens == large.capacity.pool_tokens == 2048


@pytest.mark.parametrize("architecture", ["mamba", "jamba", "lfm2"])
def test_recurrent_states_move_with_it(open_model: Open, architecture: str) -> None:
    backends = [
        open_model({"architecture": architecture}, pool_tokens=pool, max_pool_tokens=1024).backend
        for pool in (256, 1024)
    ]
    traces = []
    for backend in backends:
        backend.step([Row(3, TOKENS[:50], 0), Row(0, TOKENS, 0)])
        backend.share(0, 1, 200)
        if backend is backends[0]:
            backend.grow(1024)
        traces.append([])
        for slot, position in ((3, 50), (1, 200), (0, 200)):  # one by one: they have floats
            sampler = backend.create_sampler(GREEDY)
            for at in range(8):
                (found,) = backend.step([Row(slot, [7 + slot], position + at, sampler)])
                traces[-1].append(found.top)
    assert traces[0] == traces[1]


def test_without_memory_for_a_larger_cache_it_stays_as_it_is(
    open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = (open_model(pool_tokens=pool, batch_tokens=512).backend for pool in (512, 1024))
    replace, failures = Context.replace, [BackendError("no memory")]

    def fail_once(context: Context, parameters: Any) -> None:
        replace(context, parameters)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(Context, "replace", fail_once)
    assert answers(small, grow_at=(9,)) == answers(large)
    assert (small.capacity.pool_tokens, failures) == (512, [])


def test_a_backend_without_a_cache_says_so(
    open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = open_model(pool_tokens=256).backend
    monkeypatch.setattr("llama_cpp.llama_cpp.llama_init_from_model", lambda *_: None)
    with pytest.raises(BackendError, match="memory may be short"):
        backend.grow(512)
    for use in (backend.reset, lambda: backend.step([Row(0, TOKENS[:9], 0)])):
        with pytest.raises(BackendError, match="memory may be short"):
            use()
