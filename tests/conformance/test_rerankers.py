"""Converted cross-encoders give the scores of the originals.

convert/rerankers.json holds what transformers makes of small random checkpoints;
convert/make_rerankers.py made it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modelfile.convert.conversion import convert
from modelfile.errors import ConvertError
from runner.backends.backend import LoadedBackend
from runner.backends.llamacpp import load
from runner.backends.llamacpp.reranker import RerankerBackend, sigmoid
from runner.types import LoadPlan
from tests.conformance.convert.reranker_cases import PAIRS, RERANKERS, tokenizer_json
from tests.conformance.convert.weights import weight, write_safetensors
from tests.unit.modelfile.convert.checkpoints import files_in, ignore

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parent / "convert/rerankers.json").read_text("utf-8")
)
TOLERANCE = 5e-4  # of probabilities: GELU is approximated, keys and values are F16


def write_checkpoint(folder: Path, name: str) -> None:
    config = RERANKERS[name]["config"]
    shapes = GOLDEN[name]["tensors"]
    weights = {
        key: weight(config["model_type"], key, tuple(shape)) for key, shape in shapes.items()
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(name)))
    write_safetensors(folder / "model.safetensors", weights, "F32")


@pytest.fixture(scope="module", params=RERANKERS)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, LoadedBackend]]:
    """A case, converted and loaded as the daemon would."""
    folder = tmp_path_factory.mktemp(request.param)
    write_checkpoint(folder, request.param)
    convert(files_in(folder), folder / "model.gguf", "F32", ignore)
    plan = LoadPlan(
        str(folder / "model.gguf"), "llamacpp", 90, 90, 8, threads=1, embedding=True, ranking=True
    )
    loaded = load(plan, lambda share: None)
    yield request.param, loaded
    loaded.backend.close()


def test_a_pair_becomes_the_tokens_that_the_library_makes_of_it(
    model: tuple[str, LoadedBackend],
) -> None:
    name, loaded = model
    assert loaded.pair is not None
    found = [loaded.pair(query, document) for query, document in PAIRS]
    assert found == [pair["ids"] for pair in GOLDEN[name]["pairs"]]


def test_the_scores_are_those_of_the_checkpoint_alone_and_together(
    model: tuple[str, LoadedBackend],
) -> None:
    name, loaded = model
    pairs = GOLDEN[name]["pairs"]
    expected = [[sigmoid(pair["output"])] for pair in pairs]
    inputs = [pair["ids"] for pair in pairs]
    alone = [loaded.backend.embed([tokens])[0] for tokens in inputs]
    for scores in (alone, loaded.backend.embed(inputs)):
        for score, wanted in zip(scores, expected, strict=True):
            assert score == pytest.approx(wanted, abs=TOLERANCE)
    assert max(abs(a[0] - b[0]) for a in expected for b in expected) > 20 * TOLERANCE


def test_bert_is_told_which_text_a_token_is_of(model: tuple[str, LoadedBackend]) -> None:
    """With all tokens counted to the first text the scores would be others."""
    name, loaded = model
    backend = loaded.backend
    assert isinstance(backend, RerankerBackend)
    (segments, backend._segments) = backend._segments, None
    try:
        pairs = GOLDEN[name]["pairs"]
        scores = [backend.embed([pair["ids"]])[0][0] for pair in pairs]
    finally:
        backend._segments = segments
    wrong = max(
        abs(score - sigmoid(pair["output"])) for score, pair in zip(scores, pairs, strict=True)
    )
    assert (wrong > 4 * TOLERANCE) is (name == "bert")


def test_a_model_that_sorts_texts_into_classes_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "bert")
    config = {**RERANKERS["bert"]["config"], "id2label": {"0": "bad", "1": "good"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConvertError, match="2 classes"):
        convert(files_in(tmp_path), tmp_path / "model.gguf", "F32", ignore)
