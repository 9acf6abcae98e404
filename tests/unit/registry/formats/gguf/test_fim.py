"""The tokens that fill in the middle, by the keys and by the names of a vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.formats.gguf import GgufHeader, read_header
from tests.gguf_files import Value, gguf_file, llama_metadata, llama_tensors, tokenizer, u32

BYTE = "<0x0A>"


def header(tmp_path: Path, *tokens: str, **keys: Value) -> GgufHeader:
    """Of a model with these tokens before its one byte token."""
    path = tmp_path / "model.gguf"
    named = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    metadata = llama_metadata() | tokenizer(("a", "b", *tokens, BYTE)) | named
    path.write_bytes(gguf_file(metadata, llama_tensors()))
    return read_header(path)


@pytest.mark.parametrize(
    ("tokens", "others"),
    [
        (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), ("<|repo_name|>", "<|file_sep|>")),
        (("<fim_prefix>", "<fim_suffix>", "<fim_middle>"), ("<repo_name>", "<file_sep>")),
        (("<fim-prefix>", "<fim-suffix>", "<fim-middle>"), ()),
        (("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"), ()),
        (("▁<PRE>", "▁<SUF>", "▁<MID>"), ()),
        (("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"), ()),
    ],
)
def test_the_names_of_families_are_known(
    tmp_path: Path, tokens: tuple[str, ...], others: tuple[str, ...]
) -> None:
    fim = header(tmp_path, *tokens, *others).fim
    assert [fim.ids[role] for role in ("pre", "suf", "mid")] == [2, 3, 4]
    assert [fim.ids.get(role) for role in ("rep", "sep")][: len(others)] == [5, 6][: len(others)]
    assert (fim.missing, fim.suffix_first) == ((), False)
    assert set(fim.ends) >= {*tokens, *others}


def test_codestral_has_no_middle_and_wants_the_suffix_first(tmp_path: Path) -> None:
    fim = header(tmp_path, "[SUFFIX]", "[PREFIX]").fim
    assert fim.ids == {"suf": 2, "pre": 3}
    assert (fim.missing, fim.suffix_first) == ((), True)


@pytest.mark.parametrize("form", ["fim_{}_token_id", "{}_token_id"])
def test_ids_that_the_file_names_count_more_than_names(tmp_path: Path, form: str) -> None:
    words = ("pre", "suf", "mid") if "fim" in form else ("prefix", "suffix", "middle")
    keys = {form.format(word): u32(at + 2) for at, word in enumerate(words)}
    fim = header(tmp_path, "x", "y", "z", "<fim_prefix>", **keys).fim
    assert fim.ids == {"pre": 2, "suf": 3, "mid": 4}
    assert fim.ends == ("x", "y", "z")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert header(tmp_path).fim.missing == ("prefix", "suffix", "middle")
    assert header(tmp_path, "<PRE>", "<SUF>").fim.missing == ("middle",)


def test_an_id_outside_the_vocabulary_does_not_count(tmp_path: Path) -> None:
    assert header(tmp_path, "<MID>", fim_pre_token_id=u32(99)).fim.ids == {"mid": 2}
