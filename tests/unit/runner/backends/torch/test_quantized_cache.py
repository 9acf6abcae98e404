"""Caches in int8 and float8: near the plain cache's answers, shared, copied and saved alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from runner.backends.backend import Backend, LoadedBackend, Row, SampledToken
from runner.backends.torch import load
from runner.backends.torch.loading.memory_plan import plan_memory
from runner.backends.torch.loading.source import open_source
from runner.types import SamplingParams
from tests.unit.runner.backends.torch.conftest import EMBER, ember_plan

# Of the log-probabilities of the likeliest tokens, the size of their differences to those by a
# cache in float32 over their own size. Measured on ember over these prompts: 0.005 and 0.02.
TOLERANCES = {"int8": 0.02, "fp8": 0.08}
TOP = SamplingParams(temperature=0, logprobs=20)
PROMPTS = ("What is hearth?", "What is 3 + 4?", "Spell fire.")


@pytest.fixture(scope="module", params=TOLERANCES)
def quantized(request: pytest.FixtureRequest) -> Iterator[tuple[str, LoadedBackend]]:
    model = load(ember_plan("torch", kv_cache_type=request.param), lambda _share: None)
    yield request.param, model
    model.backend.close()


def tokens_of(model: LoadedBackend, text: str) -> list[int]:
    prompt = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    return model.tokenizer.encode(prompt, add_bos=True, parse_special=True)


def fed(backend: Backend, tokens: Sequence[int], sequence: int = 0) -> SampledToken:
    """The token after the prompt, whose last token is a step of its own that reads the cache."""
    backend.step([Row(sequence, tokens[:-1], 0)])
    return after(backend, tokens[-1], len(tokens) - 1, sequence)


def after(backend: Backend, token: int, position: int, sequence: int) -> SampledToken:
    [sampled] = backend.step([Row(sequence, [token], position, backend.create_sampler(TOP))])
    return sampled


def distance(left: SampledToken, right: SampledToken) -> float:
    known = dict(right.top)
    pairs = np.array([(nats, known[token]) for token, nats in left.top if token in known])
    assert len(pairs) > len(left.top) // 2
    return float(np.linalg.norm(pairs[:, 0] - pairs[:, 1]) / np.linalg.norm(pairs[:, 1]))


@pytest.mark.parametrize("text", PROMPTS)
def test_the_answers_are_near_those_of_a_plain_cache(
    quantized: tuple[str, LoadedBackend], ember: LoadedBackend, text: str
) -> None:
    kind, model = quantized
    tokens = tokens_of(model, text)
    found, wanted = fed(model.backend, tokens), fed(ember.backend, tokens)
    model.backend.reset()
    ember.backend.reset()
    assert found.token == wanted.token
    assert distance(found, wanted) <= TOLERANCES[kind]


def test_a_shared_block_that_two_sequences_write_to_is_copied_with_its_scales(
    quantized: tuple[str, LoadedBackend],
) -> None:
    kind, model = quantized
    backend, tokens = model.backend, tokens_of(model, PROMPTS[0])
    assert len(tokens) % 16  # the last block is not full, so it has to be copied
    backend.step([Row(0, tokens, 0)])
    backend.share(0, 1, len(tokens))
    other = after(backend, 7, len(tokens), 1)
    own = after(backend, 5, len(tokens), 0)
    again = {
        sequence: fed(backend, [*tokens, token], sequence) for sequence, token in ((2, 7), (3, 5))
    }
    backend.reset()
    assert distance(other, again[2]) <= TOLERANCES[kind]
    assert distance(own, again[3]) <= TOLERANCES[kind]


def test_a_saved_sequence_comes_back_with_its_scales(quantized: tuple[str, LoadedBackend]) -> None:
    kind, model = quantized
    backend, tokens = model.backend, tokens_of(model, PROMPTS[1])
    backend.step([Row(0, tokens, 0)])
    state = backend.save(0)
    assert state.size_bytes == backend.state_bytes(0)
    wanted = after(backend, 5, len(tokens), 0)
    backend.reset()
    backend.step([Row(6, [9] * 40, 0)])  # others write where it was
    backend.load(state, 3)
    found = after(backend, 5, len(tokens), 3)
    backend.reset()
    assert distance(found, wanted) <= TOLERANCES[kind]


@pytest.mark.parametrize("kind", TOLERANCES)
def test_the_memory_plan_counts_values_of_a_byte_and_their_scales(kind: str) -> None:
    source = open_source(EMBER)
    plans = [
        plan_memory(
            source.config,
            ember_plan("torch", kv_cache_type=name),
            source.weights,
        )
        for name in ("f32", kind)
    ]
    shape = source.config.shape
    rows = 2 * shape.layers * shape.heads_kv * plans[1].block_size
    assert plans[0].block_bytes == rows * shape.head * plans[0].dtype.itemsize
    assert plans[1].block_bytes == rows * (shape.head + np.float32().itemsize)
    assert "its cache in" in plans[1].describe()
