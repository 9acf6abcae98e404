"""Rerankers made of a decoder: a template for the pair, the probability of "yes" as its score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from runner.backends.backend import BackendError, LoadedBackend
from runner.backends.llamacpp.reranker import sigmoid
from runner.backends.llamacpp.segment_embeddings import read_segment_embeddings
from runner.errors import ModelLoadFailed

Open = Callable[..., LoadedBackend]
TEMPLATE = "<|im_start|>is {document} warm for {query}?<|im_end|>"
QWEN: dict[str, Any] = {
    "architecture": "qwen3",
    "pooling": 4,
    "labels": ("yes", "no"),
    "rank_template": TEMPLATE,
}


def opened(open_model: Open, **fields: Any) -> LoadedBackend:
    return open_model({**QWEN, **fields}, embedding=True, ranking=True)


def encode(model: LoadedBackend, text: str, *, special: bool = True) -> list[int]:
    return model.tokenizer.encode(text, add_bos=False, parse_special=special)


def scores(model: LoadedBackend, inputs: Sequence[Sequence[int]]) -> list[float]:
    return [score for (score,) in model.backend.embed(inputs)]


def test_a_pair_is_put_into_the_template(open_model: Open) -> None:
    model = opened(open_model)
    assert model.pair is not None
    expected = encode(model, TEMPLATE.format(query="the fire", document="hearth"))
    assert model.pair("the fire", "hearth") == expected


def test_control_tokens_in_the_texts_are_only_text(open_model: Open) -> None:
    model = opened(open_model)
    assert model.pair is not None
    tokens = model.pair("<|im_end|>{document}", "<|im_start|>")
    marks = [token for token in tokens if not model.tokenizer.piece(token)]
    assert marks == [encode(model, "<|im_start|>")[0], encode(model, "<|im_end|>")[0]]
    assert b"{document}" in b"".join(map(model.tokenizer.piece, tokens))


def test_the_score_is_a_probability_and_the_same_alone_and_together(open_model: Open) -> None:
    model = opened(open_model)
    assert model.pair is not None
    inputs = [model.pair("the fire", text) for text in ("warm", "and the hearth is", "ing")]
    together = scores(model, inputs)
    assert all(0 < score < 1 for score in together)
    assert len(set(together)) == 3
    assert [scores(model, [tokens])[0] for tokens in inputs] == pytest.approx(together, abs=2e-3)


def test_a_pair_longer_than_a_batch_is_read_piece_by_piece(open_model: Open) -> None:
    small = open_model(QWEN, embedding=True, ranking=True, batch_tokens=32)
    large = opened(open_model)
    assert large.pair is not None
    tokens = large.pair("the fire", "and the hearth is warm " * 12)
    assert len(tokens) > 64
    assert scores(small, [tokens]) == pytest.approx(scores(large, [tokens]), abs=2e-3)


def test_outputs_that_are_no_score_are_refused(open_model: Open) -> None:
    with pytest.raises(ModelLoadFailed, match="3 outputs"):
        opened(open_model, labels=("a", "b", "c"))


def test_numbers_that_are_none_are_refused(open_model: Open) -> None:
    model = opened(open_model, spoiled_token=9)
    with pytest.raises(BackendError, match="score"):
        scores(model, [[9, 10]])


def test_only_bert_with_two_kinds_of_tokens_has_segments(model_file: Callable[..., Any]) -> None:
    path = model_file(architecture="bert", context_length=512, pooling=1)
    segments = read_segment_embeddings(path)
    assert segments is not None
    first, second = (segments.vectors([([5, 6, 7], at)]) for at in (3, 1))
    assert np.array_equal(first[0], second[0])
    difference = second[1:] - first[1:]
    assert np.allclose(difference[0], difference[1], atol=1e-6)
    assert np.abs(difference[0]).max() > 0.01
    assert read_segment_embeddings(model_file()) is None


@pytest.mark.parametrize(("value", "expected"), [(0.0, 0.5), (800.0, 1.0), (-800.0, 0.0)])
def test_sigmoid_takes_any_number(value: float, expected: float) -> None:
    assert sigmoid(value) == pytest.approx(expected)
