"""The benchmark model, in its tiny shape."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGUFReader

from tests.benchmarks import random_model
from tests.benchmarks.random_model import SHAPES, ensure_model, tensor_shapes
from tests.benchmarks.vocabulary import synthetic_vocabulary


@pytest.fixture
def small_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary that is quick to write."""
    monkeypatch.setattr(random_model, "load_vocabulary", lambda: synthetic_vocabulary(2000))


@pytest.mark.usefixtures("small_vocabulary")
def test_the_file_holds_every_tensor_and_a_chat_template(tmp_path: Path) -> None:
    reader = GGUFReader(ensure_model(tmp_path, SHAPES["tiny"], "F16"))
    expected = dict(tensor_shapes(SHAPES["tiny"], 2000))
    assert {one.name: tuple(map(int, one.shape[::-1])) for one in reader.tensors} == expected
    assert "<|im_start|>" in str(reader.fields["tokenizer.chat_template"].contents())


@pytest.mark.usefixtures("small_vocabulary")
def test_a_model_is_made_once_and_leaves_no_part_behind(tmp_path: Path) -> None:
    first = ensure_model(tmp_path, SHAPES["tiny"], "F16")
    made = first.stat().st_mtime_ns
    assert ensure_model(tmp_path, SHAPES["tiny"], "F16").stat().st_mtime_ns == made
    assert list(tmp_path.iterdir()) == [first]


def test_the_full_shape_has_the_parameters_of_qwen3() -> None:
    sizes = [dims for _, dims in tensor_shapes(SHAPES["qwen3-0.6b"], 151_936)]
    total = sum(dims[0] * (dims[1] if len(dims) > 1 else 1) for dims in sizes)
    assert total == 596_049_920
