"""Which tensors a model must have, of which shapes and types."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from registry.errors import InvalidGguf
from registry.formats.gguf import read_header
from registry.formats.gguf.architectures import ARCHITECTURES, check_model, check_shape
from registry.formats.gguf.header import TensorInfo
from tests.gguf_files import (
    Tensor,
    Value,
    all_llama_tensors,
    f32,
    gguf_file,
    llama_metadata,
    text,
    u32,
)

KEYS: dict[str, tuple[dict[str, Value], str]] = {
    "all of a head is rotated": ({"llama.rope.dimension_count": u32(8)}, "rope.dimension_count"),
    "values as wide as keys": ({"llama.attention.value_length": u32(32)}, "attention.value_length"),
    "other heads elsewhere": ({"llama.attention.key_length_swa": u32(8)}, "key_length_swa"),
    "a width that the tensors have not": ({"llama.feed_forward_length": u32(64)}, "blk.0.ffn_gate"),
    "experts that are not there": (
        {"llama.expert_count": u32(4), "llama.expert_used_count": u32(2)},
        "blk.0.ffn_gate_inp.weight is missing",
    ),
    "a layer that predicts further": (
        {"llama.nextn_predict_layers": u32(1)},
        "has no tensor blk.1.attn_q.weight",
    ),
}


def check(folder: Path, tensors: list[Tensor], **changes: Value | None) -> None:
    metadata = {**llama_metadata(), **changes}
    kept = {key: value for key, value in metadata.items() if value is not None}
    path = folder / "model.gguf"
    path.write_bytes(gguf_file(kept, tensors))
    check_model(read_header(path))


def changed(number: int, **fields: object) -> list[Tensor]:
    tensors = all_llama_tensors()
    tensors[number] = dataclasses.replace(tensors[number], **fields)  # type: ignore[arg-type]
    return tensors


def test_a_whole_model_is_taken(tmp_path: Path) -> None:
    check(tmp_path, all_llama_tensors())


@pytest.mark.parametrize("number", range(len(all_llama_tensors())))
def test_each_tensor_must_be_there_with_its_shape(tmp_path: Path, number: int) -> None:
    tensors = all_llama_tensors()
    missing = tensors.pop(number)
    with pytest.raises(InvalidGguf, match=f"the tensor {missing.name} is missing"):
        check(tmp_path, tensors)
    shape = (missing.dimensions[0], 77) if len(missing.dimensions) > 1 else (32,)
    with pytest.raises(InvalidGguf, match=rf"tensor {missing.name} has the shape .*, expected \["):
        check(tmp_path, changed(number, dimensions=shape))


@pytest.mark.parametrize(("number", "kind"), [(6, 1), (6, 8), (1, 30), (0, 24), (2, 9), (2, 26)])
def test_a_type_that_nothing_computes_with_is_refused(
    tmp_path: Path, number: int, kind: int
) -> None:
    with pytest.raises(InvalidGguf, match=f"tensor {all_llama_tensors()[number].name} is of type"):
        check(tmp_path, changed(number, type=kind))


@pytest.mark.parametrize("kind", [0, 1, 2, 8, 20, 30])
def test_matrices_may_have_any_type_that_is_computed_with(tmp_path: Path, kind: int) -> None:
    check(tmp_path, changed(2, type=kind))


def test_a_tensor_too_many_is_refused_and_a_scale_is_not(tmp_path: Path) -> None:
    check(tmp_path, [*all_llama_tensors(), Tensor("blk.0.attn_q.scale", (1,))])
    check(tmp_path, [*all_llama_tensors(), Tensor("rope_freqs.weight", (8,))])
    for extra in ("blk.2.attn_q.weight", "blk.0.other.weight", "blk.0.other.scale", "x"):
        with pytest.raises(InvalidGguf, match=f"has no tensor {extra}"):
            check(tmp_path, [*all_llama_tensors(), Tensor(extra, (64,))])


def test_queries_keys_and_values_may_be_one_tensor(tmp_path: Path) -> None:
    fused = [tensor for tensor in all_llama_tensors() if not tensor.name.endswith("_v.weight")]
    fused = [tensor for tensor in fused if not tensor.name.endswith(("_q.weight", "_k.weight"))]
    check(tmp_path, [*fused, *(Tensor(f"blk.{n}.attn_qkv.weight", (64, 128)) for n in (0, 1))])
    with pytest.raises(InvalidGguf, match=r"attn_qkv.weight has the shape \[64, 64\]"):
        check(tmp_path, [*fused, *(Tensor(f"blk.{n}.attn_qkv.weight", (64, 64)) for n in (0, 1))])


@pytest.mark.parametrize("name", KEYS)
def test_keys_and_tensors_must_fit_together(tmp_path: Path, name: str) -> None:
    changes, message = KEYS[name]
    with pytest.raises(InvalidGguf, match=message):
        check(tmp_path, all_llama_tensors(), **changes)


@pytest.mark.parametrize(
    "key",
    [
        *("llama.attention.layer_norm_rms_epsilon", "llama.feed_forward_length"),
        *("tokenizer.ggml.model", "tokenizer.ggml.tokens"),
    ],
)
def test_a_key_that_the_loader_needs_must_be_there(tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidGguf, match=f"{key} is missing"):
        check(tmp_path, all_llama_tensors(), **{key: None})


def test_of_another_architecture_only_the_types_are_checked(tmp_path: Path) -> None:
    metadata = {
        key.replace("llama.", "future."): value for key, value in llama_metadata().items()
    } | {"general.architecture": text("future"), "future.attention.layer_norm_epsilon": f32(0.0)}
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_file(metadata, [Tensor("unheard.of", (64, 3)), Tensor("ids", (4,), 26)]))
    check_model(read_header(path))
    path.write_bytes(gguf_file(metadata, [Tensor("unheard.of", (64, 3), 25)]))
    with pytest.raises(InvalidGguf, match=r"unheard\.of is of type I16"):
        check_model(read_header(path))
    assert "future" not in ARCHITECTURES


def test_a_matrix_of_one_row_is_no_vector() -> None:
    """A classifier of one label is stored in the model's type."""
    check_shape(TensorInfo("cls.output.weight", (64,), "F16", 0, 128), [64, 1])
    with pytest.raises(InvalidGguf, match="expected F32"):
        check_shape(TensorInfo("cls.bias", (64,), "F16", 0, 128), [64])
