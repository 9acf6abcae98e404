"""Steps that are begun before the last one was read, on torch: the same answers as one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pytest

from runner.backends.backend import LoadedBackend, Row, RowFault
from runner.backends.torch.backend import TorchBackend
from runner.backends.torch.cuda.launch_ahead import LaunchAheadBackend, launch_ahead
from runner.backends.torch.loading import memory_plan
from runner.backends.torch.sampling import BatchSampler
from runner.engine.engine import Engine
from runner.errors import HearthError
from runner.types import Delta, GenerateRequest, SamplingParams
from tests.unit.runner.backends.torch.conftest import ember_plan
from tests.unit.runner.backends.torch.test_backend import PROMPTS, tokens_of

GREEDY = SamplingParams(temperature=0, top_k=0, top_p=1.0)
DRAWN = SamplingParams(temperature=1.2, top_k=40, top_p=0.95, seed=4)
# (prompt, sampling, most tokens, the step it comes at, the step it is cancelled at)
Asked = tuple[str, SamplingParams, int, int, int | None]
REQUESTS: tuple[Asked, ...] = (
    (PROMPTS[0], GREEDY, 24, 0, None),
    (PROMPTS[1], DRAWN, 16, 0, None),
    (PROMPTS[2], SamplingParams(temperature=0, logprobs=2), 6, 5, None),
    (PROMPTS[3], DRAWN, 30, 9, 15),
    (PROMPTS[0] + " And why?", GREEDY, 9, 18, None),
    (PROMPTS[1], SamplingParams(temperature=0.8, seed=2, repeat_penalty=1.3), 8, 22, None),
)


@pytest.fixture(scope="module")
def wide() -> Iterator[LoadedBackend]:
    """ember in float32, whose products depend little on what else is in the step, and whose
    plain rows are drawn from the logits together, as on a GPU."""
    from runner.backends.torch import load

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(memory_plan, "supports_bfloat16", lambda: False)
        model = load(ember_plan("torch"), lambda _share: None)
    backend = model.backend
    assert isinstance(backend, TorchBackend)
    backend._sampling = BatchSampler(backend.capacity.vocabulary, on_device=True)
    yield model
    backend.close()


@pytest.fixture
def on_device(wide: LoadedBackend) -> Iterator[LoadedBackend]:
    """The same with an empty cache."""
    yield wide
    wide.backend.reset()


def answers(
    model: LoadedBackend, requests: Sequence[Asked]
) -> tuple[dict[str, list[Delta]], dict[str, HearthError], Engine]:
    """What each request was answered, by an engine that also stops and cancels."""
    model.backend.reset()
    engine = Engine(launch_ahead(model.backend), model.tokenizer, clock=lambda: 0.0)
    deltas: dict[str, list[Delta]] = {}
    errors: dict[str, HearthError] = {}
    at, last = 0, max(start for *_, start, _ in requests)
    while engine.busy or at <= last:
        for number, (text, sampling, most, start, cancelled) in enumerate(requests):
            if start == at:
                request = GenerateRequest(f"r{number}", sampling, max_tokens=most)
                engine.submit(request, tokens_of(model, text))
            if cancelled == at:
                engine.cancel(f"r{number}")
        outcome = engine.step()
        for id, delta in outcome.deltas:
            deltas.setdefault(id, []).append(delta)
        errors.update(outcome.errors)
        at += 1
    return deltas, errors, engine


def told(deltas: dict[str, list[Delta]]) -> object:
    """All but the log-probabilities, whose last digits depend on the step."""
    return {
        id: [(one.text, one.finish, [found.token for found in one.logprobs]) for one in answer]
        for id, answer in deltas.items()
    }


def test_the_answers_are_those_of_one_step_after_the_other(
    on_device: LoadedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _, _ = answers(on_device, REQUESTS)
    monkeypatch.setattr(on_device.backend, "launches", True)
    found, errors, engine = answers(on_device, REQUESTS)
    assert told(found) == told(expected)
    assert not errors
    ahead = engine._backend
    assert isinstance(ahead, LaunchAheadBackend)
    assert ahead.launches.chained > 10
    assert ahead.launches.kept > 20


def test_a_seed_draws_the_same_after_a_row_was_dropped(on_device: LoadedBackend) -> None:
    backend = on_device.backend
    assert isinstance(backend, TorchBackend)
    tokens = tokens_of(on_device, PROMPTS[3])
    said = []
    for dropped in (False, True):
        sampler = backend.create_sampler(DRAWN)
        [first] = backend.step([Row(0, tokens, 0, sampler)])
        row = Row(0, [first.token], len(tokens), sampler)
        pending = backend.launch([row], None)
        if dropped:
            pending.drop(0)
            assert int(backend._pool.lengths[0]) == len(tokens)
            said.append(backend.step([row]))
        else:
            said.append(pending.collect())
        backend.release(0)
    assert said[0] == said[1]


def test_some_rows_go_on_without_the_others(on_device: LoadedBackend) -> None:
    backend = on_device.backend
    assert isinstance(backend, TorchBackend)
    samplers = [backend.create_sampler(GREEDY) for _ in range(3)]
    prompts = [tokens_of(on_device, text) for text in PROMPTS[:3]]
    rows = [Row(at, prompts[at], 0, samplers[at]) for at in range(3)]
    firsts = [one.token for one in backend.step(rows)]
    begun = backend.launch(
        [Row(at, [firsts[at]], len(prompts[at]), samplers[at]) for at in range(3)], None
    )
    after = backend.launch(
        [Row(at, [0], len(prompts[at]) + 1, samplers[at]) for at in (2, 0)], begun
    )
    seconds = {one.sequence: one.token for one in begun.collect()}
    thirds = {one.sequence: one.token for one in after.collect()}
    backend.reset()
    for at in (0, 2):
        tokens = [*prompts[at], firsts[at], seconds[at]]
        [found] = backend.step([Row(at, tokens, 0, backend.create_sampler(GREEDY))])
        assert found.token == thirds[at]


def test_unusable_logits_are_a_fault_of_their_row_when_it_is_read(
    on_device: LoadedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = on_device.backend
    assert isinstance(backend, TorchBackend)
    tokens = tokens_of(on_device, PROMPTS[0])
    samplers = [backend.create_sampler(GREEDY) for _ in range(2)]
    rows = [Row(at, tokens, 0, samplers[at]) for at in range(2)]
    firsts = [one.token for one in backend.step(rows)]
    compute = type(backend._executor._model).logits  # type: ignore[union-attr]

    def spoiled(self: object, hidden: object) -> object:
        logits = compute(self, hidden)  # type: ignore[arg-type]
        logits[0, 3] = math.nan
        return logits

    with monkeypatch.context() as patched:
        patched.setattr(type(backend._executor._model), "logits", spoiled)
        pending = backend.launch(
            [Row(at, [firsts[at]], len(tokens), samplers[at]) for at in range(2)], None
        )
    after = backend.launch(
        [Row(at, [0], len(tokens) + 1, samplers[at]) for at in range(2)], pending
    )
    with pytest.raises(RowFault, match="NaN") as fault:
        pending.collect()
    assert fault.value.sequences == (0,)
    assert [one.sequence for one in fault.value.sampled] == [1]
    after.drop(0)
    assert [one.sequence for one in after.collect()] == [1]


def test_on_a_cpu_no_step_is_begun_early(loaded: LoadedBackend) -> None:
    engine = Engine(loaded.backend, loaded.tokenizer)
    assert engine._backend is loaded.backend
