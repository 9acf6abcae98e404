"""dry means what tests/dry_definition.py and llama.cpp's own sampler say."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_cpp import llama_cpp as native

from runner.backends.backend import LoadedBackend
from runner.backends.dry_breakers import find_breakers
from runner.backends.host_sampling.dry import DryPenalty, create_dry
from runner.backends.llamacpp.backend import LlamaCppBackend
from runner.types import SamplingParams
from tests.dry_definition import dry_penalties
from tests.properties import examples

few = st.integers(0, 4)
breakers = st.dictionaries(
    few, st.lists(st.lists(few, max_size=2).map(tuple), min_size=1, max_size=2).map(tuple)
)
parameters = st.builds(
    SamplingParams,
    dry_multiplier=st.sampled_from([0.8, 2.0]),
    dry_base=st.sampled_from([1.0, 1.75, 4.0]),
    dry_allowed_length=st.integers(1, 4),
    dry_penalty_last_n=st.sampled_from([-1, -1, 1, 5, 12, 64]),
    dry_breakers=breakers | st.just({}),
)


def penalties(dry: DryPenalty) -> dict[int, float]:
    tokens, lost = dry.penalties()
    return dict(zip(tokens.tolist(), lost.tolist(), strict=True))


@examples(100)
@given(parameters, st.lists(few, max_size=40))
def test_penalties_kept_up_to_date_are_those_of_the_reference(
    params: SamplingParams, history: list[int]
) -> None:
    dry = DryPenalty(params)
    for end in range(len(history) + 1):
        assert penalties(dry) == pytest.approx(dry_penalties(params, history[:end]), rel=1e-5)
        dry.extend(history[end : end + 1])


@examples(60)
@given(parameters, st.lists(few, max_size=60), st.lists(few, max_size=6))
def test_a_prompt_let_in_at_once_is_the_same_as_token_by_token(
    params: SamplingParams, prompt: list[int], output: list[int]
) -> None:
    dry = DryPenalty(params)
    dry.extend(prompt)
    for end in range(len(output) + 1):
        history = prompt + output[:end]
        assert penalties(dry) == pytest.approx(dry_penalties(params, history), rel=1e-5)
        dry.extend(output[end : end + 1])


@pytest.mark.parametrize("period", [1, 2, 40])
def test_a_long_prompt_that_repeats_itself_is_let_in_quickly(period: int) -> None:
    dry = DryPenalty(SamplingParams(dry_multiplier=1.0))
    dry.extend([at % period for at in range(20_000)])
    assert set(penalties(dry)) == {20_000 % period}


def test_a_run_of_any_length_costs_a_finite_amount() -> None:
    params = SamplingParams(dry_multiplier=100.0, dry_base=9.0)
    dry = DryPenalty(params)
    dry.extend([1, 2, 3] * 300)
    assert np.isfinite(list(penalties(dry).values())).all()


@pytest.mark.parametrize(
    "off", [{"dry_multiplier": 0.0}, {"dry_base": 0.5}, {"dry_penalty_last_n": 0}]
)
def test_what_is_off_keeps_nothing(off: Mapping[str, Any]) -> None:
    assert create_dry(replace(SamplingParams(dry_multiplier=1.0), **off)) is None


def llama_cpp_penalties(
    loaded: LoadedBackend, params: SamplingParams, history: list[int]
) -> dict[int, float]:
    """What llama.cpp's sampler subtracts."""
    assert isinstance(loaded.backend, LlamaCppBackend)
    vocabulary = loaded.backend.capacity.vocabulary
    texts = [text.encode() for text in params.dry_sequence_breakers]
    sampler = native.llama_sampler_init_dry(
        loaded.backend._context.vocabulary,
        params.dry_multiplier,
        params.dry_base,
        params.dry_allowed_length,
        params.dry_penalty_last_n,
        (ctypes.c_char_p * len(texts))(*texts),
        len(texts),
    )
    data = (native.llama_token_data * vocabulary)()
    for token in range(vocabulary):
        data[token].id = token
    array = native.llama_token_data_array(data, vocabulary, -1, False)
    for token in history:
        native.llama_sampler_accept(sampler, token)
    native.llama_sampler_apply(sampler, ctypes.byref(array))
    native.llama_sampler_free(sampler)
    return {item.id: -item.logit for item in data if item.logit}


@pytest.mark.parametrize("texts", [(), ("\n", ":", '"', "*"), ("fire",), ("e", "th fi", "ing")])
@pytest.mark.parametrize("seed", range(4))
def test_penalties_are_llama_cpps(
    open_model: Callable[..., LoadedBackend], texts: tuple[str, ...], seed: int
) -> None:
    loaded = open_model()
    tokenizer = loaded.tokenizer
    words = "the fire is warm and the fire: the fire is warm hearth the fireing: the fire is"
    random = np.random.default_rng(seed)
    parts = tokenizer.encode(words, add_bos=False, parse_special=False)
    history = [*parts, *random.choice(parts, 30).tolist(), *parts[: 5 + 7 * seed]]
    params = SamplingParams(
        dry_multiplier=0.8,
        dry_penalty_last_n=1000,
        dry_sequence_breakers=texts,
        dry_breakers=find_breakers(tokenizer, texts),
    )
    dry = DryPenalty(params)
    dry.extend(history)
    expected = llama_cpp_penalties(loaded, params, history)
    assert expected
    assert penalties(dry) == pytest.approx(expected, rel=1e-4)
