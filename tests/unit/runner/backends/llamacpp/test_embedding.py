"""Embeddings: one normalised vector for each input, whatever it is computed together with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from llama_cpp import llama_cpp as native

from runner.backends.backend import Backend, BackendError, LoadedBackend, Row
from runner.backends.llamacpp import embedding
from runner.types import EmbeddingForm, Pooling, SamplingParams

Open = Callable[..., LoadedBackend]

ENCODER: dict[str, Any] = {"architecture": "bert", "context_length": 512, "pooling": 1}
LAST_TOKEN: dict[str, Any] = {"pooling": 3}
MODELS = pytest.mark.parametrize(
    "model", [ENCODER, {**ENCODER, "pooling": 2}, LAST_TOKEN, {"pooling": 1}, {}]
)
INPUTS = [[2, 9, 12, 3], [2, 20, 3], [2, 5, 6, 7, 8, 9, 10, 3], [2, 9, 13, 3]]


def cosine(one: list[float], other: list[float]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


@MODELS
def test_vectors_have_length_one_and_differ(open_model: Open, model: dict[str, Any]) -> None:
    vectors = open_model(model, embedding=True).backend.embed(INPUTS)
    assert len(vectors) == len(INPUTS)
    for vector in vectors:
        assert len(vector) == 64
        assert cosine(vector, vector) == pytest.approx(1.0, abs=1e-5)
    assert cosine(vectors[0], vectors[2]) < 0.9999


@MODELS
def test_an_input_alone_and_among_others_has_the_same_vector(
    open_model: Open, model: dict[str, Any]
) -> None:
    backend = open_model(model, embedding=True).backend
    together = backend.embed(INPUTS)
    for tokens, vector in zip(INPUTS, together, strict=True):
        assert backend.embed([tokens])[0] == pytest.approx(vector, abs=2e-3)


@MODELS
def test_more_inputs_than_sequences_and_than_a_batch_holds_are_all_answered(
    open_model: Open, model: dict[str, Any]
) -> None:
    backend = open_model(model, embedding=True, batch_tokens=20).backend
    many = INPUTS * 10
    vectors = backend.embed(many)
    alone = open_model(model, embedding=True).backend.embed(INPUTS)
    for at, vector in enumerate(vectors):
        assert vector == pytest.approx(alone[at % 4], abs=2e-3)


@MODELS
def test_an_input_longer_than_a_batch_is_computed_as_a_whole(
    open_model: Open, model: dict[str, Any]
) -> None:
    tokens = [2, *(5 + at % 40 for at in range(300)), 3]
    (small,) = open_model(model, embedding=True, batch_tokens=64).backend.embed([tokens])
    (large,) = open_model(model, embedding=True, batch_tokens=512).backend.embed([tokens])
    assert small == pytest.approx(large, abs=2e-3)


@pytest.mark.parametrize("count", [0, 513])
def test_inputs_that_are_empty_or_too_long_are_refused(open_model: Open, count: int) -> None:
    backend = open_model(LAST_TOKEN, embedding=True).backend
    with pytest.raises(BackendError, match=f"{count} tokens"):
        backend.embed([[5] * count])
    assert len(backend.embed([[5, 6]])) == 1


def test_an_encoder_takes_no_more_than_it_has_positions_for(open_model: Open) -> None:
    model = {**ENCODER, "context_length": 64}
    backend = open_model(model, embedding=True, context_length=512).backend
    assert backend.capacity.context_length == 64
    with pytest.raises(BackendError, match="65 tokens"):
        backend.embed([[5] * 65])
    assert len(backend.embed([[5] * 64])) == 1


def test_no_inputs_give_no_vectors(open_model: Open) -> None:
    assert open_model(LAST_TOKEN, embedding=True).backend.embed([]) == []


def test_a_vector_of_nan_is_an_error(open_model: Open) -> None:
    backend = open_model({**LAST_TOKEN, "spoiled_token": 250}, embedding=True).backend
    with pytest.raises(BackendError, match="NaN"):
        backend.embed([[5, 250]])


def test_encoders_wrap_text_in_their_own_tokens(open_model: Open) -> None:
    tokenizer = open_model(ENCODER, embedding=True).tokenizer
    tokens = tokenizer.encode("warm fire", add_bos=True, parse_special=False)
    assert [tokenizer.text(token) for token in (tokens[0], tokens[-1])] == ["[CLS]", "[SEP]"]


def test_it_generates_nothing(open_model: Open) -> None:
    backend: Backend = open_model(LAST_TOKEN, embedding=True).backend
    with pytest.raises(BackendError, match="embeddings"):
        backend.step([Row(0, [1], 0)])
    with pytest.raises(BackendError, match="embeddings"):
        backend.create_sampler(SamplingParams())
    with pytest.raises(BackendError, match="embeddings"):
        backend.share(0, 1, 1)
    assert not backend.trim(0, 1)
    backend.release(0)
    backend.reset()
    backend.close()
    backend.close()


@pytest.mark.parametrize("own", [{**ENCODER, "pooling": 1}, {**ENCODER, "pooling": 3}, LAST_TOKEN])
@pytest.mark.parametrize(("pooling", "kind"), [("mean", 1), ("cls", 2), ("last", 3)])
def test_a_pooling_that_is_asked_for_is_that_of_a_model_made_so(
    open_model: Open, own: dict[str, Any], pooling: Pooling, kind: int
) -> None:
    backend = open_model(own, embedding=True).backend
    made_so = open_model({**own, "pooling": kind}, embedding=True).backend
    before = backend.embed(INPUTS)
    asked = backend.embed(INPUTS, EmbeddingForm(pooling))
    for vector, wanted in zip(asked, made_so.embed(INPUTS), strict=True):
        assert vector == pytest.approx(wanted, abs=2e-3)
    assert backend.embed(INPUTS) == before


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_a_long_input_is_pooled_over_all_its_pieces(open_model: Open, pooling: Pooling) -> None:
    tokens = [2, *(5 + at % 40 for at in range(300)), 3]
    form = EmbeddingForm(pooling, normalize=False)
    small = open_model(LAST_TOKEN, embedding=True, batch_tokens=64).backend
    large = open_model(LAST_TOKEN, embedding=True, batch_tokens=512).backend
    (vector,), (wanted,) = small.embed([tokens], form), large.embed([tokens], form)
    assert vector == pytest.approx(wanted, abs=2e-3)


@pytest.mark.parametrize("model", [ENCODER, LAST_TOKEN])
def test_each_token_has_a_vector_of_which_the_pooled_ones_are_made(
    open_model: Open, model: dict[str, Any]
) -> None:
    backend = open_model(model, embedding=True).backend
    states = backend.embed(INPUTS, EmbeddingForm("none", normalize=False))
    assert len(states) == sum(map(len, INPUTS))
    mean = backend.embed(INPUTS, EmbeddingForm("mean", normalize=False))
    last = backend.embed(INPUTS, EmbeddingForm("last", normalize=False))
    start = 0
    for at, tokens in enumerate(INPUTS):
        own = states[start : (start := start + len(tokens))]
        assert own[-1] == pytest.approx(last[at], abs=2e-3)
        middle = [math.fsum(values) / len(own) for values in zip(*own, strict=True)]
        assert middle == pytest.approx(mean[at], abs=2e-3)


def test_the_tokens_of_a_long_input_have_the_vectors_of_a_single_piece(open_model: Open) -> None:
    tokens = [2, *(5 + at % 40 for at in range(300)), 3]
    form = EmbeddingForm("none", normalize=False)
    small = open_model(LAST_TOKEN, embedding=True, batch_tokens=64).backend.embed([tokens], form)
    large = open_model(LAST_TOKEN, embedding=True, batch_tokens=512).backend.embed([tokens], form)
    assert len(small) == len(large) == 302
    for vector, wanted in zip(small, large, strict=True):
        assert vector == pytest.approx(wanted, abs=2e-3)


@pytest.mark.parametrize(
    ("values", "whole"),
    [
        ({"general.architecture": "gemma-embedding"}, True),
        ({"general.architecture": "bert", "bert.attention.causal": "true"}, True),
        ({"general.architecture": "llama", "llama.attention.causal": "false"}, True),
        ({"general.architecture": "llama"}, False),
    ],
)
def test_what_has_no_cache_is_not_cut_into_pieces(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], whole: bool
) -> None:
    monkeypatch.setattr(embedding, "metadata", lambda _model, key: values.get(key))
    assert embedding.needs_whole_inputs(None) == whole


@pytest.mark.parametrize("own", [ENCODER, LAST_TOKEN])
def test_there_is_one_context_at_a_time_however_inputs_are_pooled(
    open_model: Open, own: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    alive, sizes = set[Any](), set[tuple[int, int]]()
    make, free = native.llama_init_from_model, native.llama_free

    def counted(model: Any, params: Any) -> Any:
        assert not alive
        handle = make(model, params)
        alive.add(handle)
        sizes.add((native.llama_n_ctx(handle), native.llama_n_ubatch(handle)))
        return handle

    def freed(handle: Any) -> None:
        alive.remove(handle)
        free(handle)

    monkeypatch.setattr(native, "llama_init_from_model", counted)
    monkeypatch.setattr(native, "llama_free", freed)
    backend = open_model(own, embedding=True).backend
    poolings: list[Pooling | None] = ["mean", None, "none", "cls", "cls", "last", None]
    for pooling in poolings:
        backend.embed(INPUTS, EmbeddingForm(pooling))
    assert len(alive) == 1
    assert len(sizes) == 1  # what the memory plan counts once
    backend.close()
    assert not alive


@MODELS
def test_vectors_that_are_not_normalised_point_the_same_way(
    open_model: Open, model: dict[str, Any]
) -> None:
    backend = open_model(model, embedding=True).backend
    (unit,) = backend.embed(INPUTS[:1])
    (raw,) = backend.embed(INPUTS[:1], EmbeddingForm(normalize=False))
    length = math.hypot(*raw)
    assert length != pytest.approx(1.0, abs=1e-3)
    assert [value / length for value in raw] == pytest.approx(unit, abs=1e-5)
