"""The types of keys, and numbers that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.errors import InvalidGguf
from registry.formats.gguf import read_header, types
from tests.gguf_files import Value, f32, gguf_file, i32, llama_metadata, numbers, text, u32

EPSILON = "llama.attention.layer_norm_rms_epsilon"
WRONG: dict[str, Value] = {
    "general.name": u32(1),
    "general.file_type": i32(1),
    "split.count": u32(1),
    "tokenizer.ggml.pre": u32(1),
    "tokenizer.ggml.add_bos_token": u32(1),
    "tokenizer.ggml.mask_token_id": i32(1),
    "tokenizer.ggml.token_type": numbers(types.UINT32, [1, 1, 1, 6]),
    "llama.rope.freq_base": u32(10_000),
    "llama.rope.scaling.type": u32(1),
    "llama.attention.causal": u32(1),
    "llama.nextn_predict_layers": f32(1.0),
    "clip.vision.image_size": text("224"),
}
NO_NUMBERS: dict[str, float] = {
    EPSILON: -1.0,
    "llama.attention.layer_norm_epsilon": float("nan"),
    "llama.rope.freq_base": 0.0,
    "llama.rope.scaling.factor": float("inf"),
    "llama.attention.max_alibi_bias": -8.0,
    "llama.logit_scale": float("-inf"),
}


def read(folder: Path, key: str, value: Value) -> None:
    path = folder / "model.gguf"
    metadata = llama_metadata() | {key: value}
    if key.startswith("clip."):
        metadata = {"general.architecture": text("clip"), key: value}
    path.write_bytes(gguf_file(metadata))
    read_header(path)


@pytest.mark.parametrize("key", WRONG)
def test_a_key_of_another_type_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidGguf, match=f"{key} is of type .*, expected"):
        read(tmp_path, key, WRONG[key])


@pytest.mark.parametrize("key", NO_NUMBERS)
def test_a_number_that_cannot_be_computed_with_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidGguf, match=f"{key} is .*, expected a finite number"):
        read(tmp_path, key, f32(NO_NUMBERS[key]))


def test_a_scaling_of_positions_is_one_that_is_known(tmp_path: Path) -> None:
    read(tmp_path, "llama.rope.scaling.type", text("yarn"))
    with pytest.raises(InvalidGguf, match="is 'spiral', expected one of none, linear"):
        read(tmp_path, "llama.rope.scaling.type", text("spiral"))


def test_a_key_that_nobody_reads_may_have_any_type(tmp_path: Path) -> None:
    for value in (u32(1), text("x"), f32(float("nan"))):
        read(tmp_path, "general.url", value)
        read(tmp_path, "llama.of_tomorrow", value)
