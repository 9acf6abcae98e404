"""Embeddings on torch: the vectors that llama.cpp computes of the same file, and its refusals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from runner.backends.backend import BackendError, LoadedBackend, Row
from runner.errors import ModelLoadFailed
from runner.types import OWN_FORM, EmbeddingForm, LoadPlan, SamplingParams
from tests.unit.runner.backends.conftest import TinyModel, write_model

ENCODER = TinyModel(architecture="bert", context_length=64, pooling=1)
INPUTS = [[2, 9, 12, 3], [2, 20, 3], [2, 5, 6, 7, 8, 9, 10, 3], [2, 9, 13, 3]]


def plan(path: Path, backend: str, **changes: Any) -> LoadPlan:
    values: dict[str, Any] = {
        "path": str(path),
        "backend": backend,
        "context_length": 64,
        "pool_tokens": 256,
        "max_sequences": 4,
        "batch_tokens": 64,
        "threads": 1,
        "embedding": True,
    }
    return LoadPlan(**{**values, **changes})


def opened(path: Path, **changes: Any) -> LoadedBackend:
    from runner.backends.torch import load

    return load(plan(path, "torch", **changes), lambda _share: None)


def vectors_of_llamacpp(
    path: Path, inputs: Sequence[Sequence[int]], form: EmbeddingForm = OWN_FORM
) -> list[list[float]]:
    from runner.backends.llamacpp import load

    model = load(plan(path, "llamacpp"), lambda _share: None)
    try:
        return model.backend.embed(inputs, form)
    finally:
        model.backend.close()


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("encoder") / "bert.gguf", ENCODER)


@pytest.mark.parametrize("pooling", [None, 1, 2, 3])
def test_vectors_are_those_of_llamacpp(pooling: int | None, tmp_path: Path) -> None:
    model = TinyModel(architecture="bert", context_length=64, pooling=pooling)
    path = write_model(tmp_path / "bert.gguf", model)
    found, wanted = opened(path).backend.embed(INPUTS), vectors_of_llamacpp(path, INPUTS)
    for left, right in zip(found, wanted, strict=True):
        assert left == pytest.approx(right, abs=2e-3)
        assert math.fsum(value * value for value in left) == pytest.approx(1.0, abs=1e-5)


def test_the_vectors_of_tokens_are_those_of_llamacpp(encoder: Path) -> None:
    form = EmbeddingForm("none", normalize=False)
    found = opened(encoder).backend.embed(INPUTS, form)
    wanted = vectors_of_llamacpp(encoder, INPUTS, form)
    assert len(found) == len(wanted) == sum(map(len, INPUTS))
    for left, right in zip(found, wanted, strict=True):
        assert left == pytest.approx(right, abs=2e-2)


def test_an_input_alone_and_among_many_has_the_same_vector(encoder: Path) -> None:
    backend = opened(encoder, batch_tokens=20).backend
    on_device = backend.embed(INPUTS * 10)
    assert len(on_device) == 40
    for at, vector in enumerate(on_device):
        assert vector == pytest.approx(backend.embed([INPUTS[at % 4]])[0], abs=1e-5)


def test_no_inputs_have_no_vectors(encoder: Path) -> None:
    assert opened(encoder).backend.embed([]) == []


@pytest.mark.parametrize("tokens", [[], [2] * 65])
def test_an_input_that_is_empty_or_too_long_is_refused(encoder: Path, tokens: list[int]) -> None:
    with pytest.raises(BackendError, match=f"{len(tokens)} tokens; this model takes 1 to 64"):
        opened(encoder).backend.embed([INPUTS[0], tokens])


@pytest.mark.parametrize("token", [-1, 100_000])
def test_a_token_outside_of_the_vocabulary_is_refused(encoder: Path, token: int) -> None:
    with pytest.raises(BackendError, match="outside of 0 to"):
        opened(encoder).backend.embed([[2, token, 3]])


def test_a_vector_that_is_no_number_is_refused(tmp_path: Path) -> None:
    model = TinyModel(architecture="bert", context_length=64, spoiled_token=9)
    backend = opened(write_model(tmp_path / "bert.gguf", model)).backend
    with pytest.raises(BackendError, match="an invalid embedding"):
        backend.embed([[2, 9, 3]])
    assert backend.embed([[2, 10, 3]])


def test_an_embedder_generates_nothing(encoder: Path) -> None:
    backend = opened(encoder).backend
    for refused in (
        lambda: backend.step([Row(0, [1], 0)]),
        lambda: backend.create_sampler(SamplingParams()),
        lambda: backend.share(0, 1, 1),
    ):
        with pytest.raises(BackendError, match="cannot generate text"):
            refused()
    assert backend.trim(0, 1) is False
    assert backend.state_bytes(0) == 0


def test_an_encoder_is_not_loaded_to_generate(encoder: Path) -> None:
    with pytest.raises(ModelLoadFailed, match="is an encoder"):
        opened(encoder, embedding=False)


def test_a_reranker_is_refused(encoder: Path) -> None:
    with pytest.raises(ModelLoadFailed, match="Use the backend llamacpp"):
        opened(encoder, ranking=True)


def test_a_decoder_is_refused_for_embeddings(tmp_path: Path) -> None:
    path = write_model(tmp_path / "llama.gguf", TinyModel(context_length=64))
    with pytest.raises(ModelLoadFailed, match="not an encoder"):
        opened(path)


def test_a_pooling_that_is_not_known_is_refused(tmp_path: Path) -> None:
    path = write_model(tmp_path / "bert.gguf", TinyModel(architecture="bert", pooling=4))
    with pytest.raises(ModelLoadFailed, match="pooling_type 4"):
        opened(path)
