"""Rules on an architecture's figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.errors import InvalidGguf
from registry.formats.gguf import GgufHeader, read_header, types
from tests.gguf_files import (
    Value,
    gguf_file,
    i32,
    llama_metadata,
    llama_tensors,
    numbers,
    text,
    u32,
)

REQUIRED = ("block_count", "context_length", "embedding_length", "attention.head_count")
POISON: dict[str, tuple[str, Value]] = {
    "no layers": ("block_count", u32(0)),
    "too many layers": ("block_count", u32(513)),
    "layers as text": ("block_count", text("2")),
    "layers as int32": ("block_count", i32(2)),
    "no context": ("context_length", u32(0)),
    "no width": ("embedding_length", u32(0)),
    "a huge width": ("embedding_length", u32(2**31)),
    "a width that heads do not divide": ("embedding_length", u32(63)),
    "no heads": ("attention.head_count", u32(0)),
    "heads as a float": ("attention.head_count", Value(types.FLOAT32, 4.0)),
    "heads for one of two layers": ("attention.head_count", numbers(types.UINT32, [4])),
    "negative heads": ("attention.head_count_kv", numbers(types.INT32, [2, -1])),
    "heads of the wrong type": ("attention.head_count_kv", numbers(types.FLOAT32, [2, 2])),
    "kv heads that do not divide": ("attention.head_count_kv", u32(3)),
    "no key length": ("attention.key_length", u32(0)),
    "no value length": ("attention.value_length", u32(0)),
    "too many experts": ("expert_count", u32(100_000)),
    "more experts used than there are": ("expert_used_count", u32(2)),
    "a huge feed-forward": ("feed_forward_length", u32(2**32 - 1)),
    "a huge rope": ("rope.dimension_count", u32(2**32 - 1)),
    "no vocabulary": ("vocab_size", u32(0)),
}


def _read(folder: Path, metadata: dict[str, Value]) -> GgufHeader:
    path = folder / "model.gguf"
    path.write_bytes(gguf_file(metadata, llama_tensors()))
    return read_header(path)


@pytest.mark.parametrize("name", POISON)
def test_a_figure_that_llama_cpp_would_trip_over_is_refused(tmp_path: Path, name: str) -> None:
    key, value = POISON[name]
    with pytest.raises(InvalidGguf, match=r"llama\."):
        _read(tmp_path, llama_metadata() | {f"llama.{key}": value})


@pytest.mark.parametrize("key", REQUIRED)
def test_a_decoder_without_a_required_key_is_refused(tmp_path: Path, key: str) -> None:
    metadata = llama_metadata()
    del metadata[f"llama.{key}"]
    with pytest.raises(InvalidGguf, match=rf"llama\.{key} is missing"):
        _read(tmp_path, metadata)


def test_any_other_key_may_be_missing(tmp_path: Path) -> None:
    for key in llama_metadata():
        if key == "general.architecture" or key.removeprefix("llama.") in REQUIRED:
            continue
        metadata = llama_metadata()
        del metadata[key]
        assert _read(tmp_path, metadata).architecture == "llama"


def test_an_architecture_without_attention_needs_no_heads(tmp_path: Path) -> None:
    header = _read(tmp_path, {"general.architecture": text("mamba")})
    assert (header.head_count, header.kv_elements_per_token) == (None, None)


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "\x1b[2J", "../x"])
def test_an_architecture_that_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidGguf, match=r"general\.architecture is"):
        _read(tmp_path, llama_metadata() | {"general.architecture": text(name)})


def test_a_huge_template_is_refused(tmp_path: Path) -> None:
    huge = text("x" * (256 * 1024 + 1))
    with pytest.raises(InvalidGguf, match=r"tokenizer\.chat_template: expected text of at most"):
        _read(tmp_path, llama_metadata() | {"tokenizer.chat_template": huge})


def test_a_projector_needs_no_decoder_figures(tmp_path: Path) -> None:
    metadata = {"general.architecture": text("llama"), "general.type": text("mmproj")}
    assert _read(tmp_path, metadata).block_count is None
