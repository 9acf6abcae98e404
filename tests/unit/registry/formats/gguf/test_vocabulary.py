"""Rules on the vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest
from llama_cpp import llama_cpp as native

from registry.errors import InvalidGguf
from registry.formats.gguf import GgufHeader, read_header, types
from registry.formats.gguf.vocabulary import PRE_TOKENIZERS
from runner.backends.host_sampling.library import start_library
from tests.gguf_files import (
    Value,
    gguf_file,
    i32,
    llama_metadata,
    numbers,
    text,
    texts,
    tokenizer,
    u32,
)

POISON: dict[str, tuple[dict[str, Value], str]] = {
    "duplicate tokens": (tokenizer(["a", "b", "a", "<0x0A>"]), "tokens 0 and 2 are both b'a'"),
    "no tokens": ({"tokens": texts([])}, "tokens: empty"),
    "tokens that are numbers": (
        {"tokens": numbers(types.INT32, [1])},
        "tokens is of type array of",
    ),
    "tokens that are one text": ({"tokens": u32(1)}, "tokens is of type uint32"),
    "a token of 5000 bytes": (tokenizer(["x" * 5000, "<0x0A>"]), "a token of 5000 bytes"),
    "a token not UTF-8": (tokenizer([b"\xff\xfe", "<0x0A>"]), "element 0 is not UTF-8"),
    "a character over two tokens": (tokenizer([b"\xc3", b"\xa9", "<0x0A>"]), "not UTF-8"),
    "too few scores": ({"scores": numbers(types.FLOAT32, [0.0])}, "1 elements, expected 4"),
    "scores that are ints": (
        {"scores": numbers(types.INT32, [0] * 4)},
        "scores is of type array of",
    ),
    "a score that is not a number": (
        {"scores": numbers(types.FLOAT32, [0.0, float("nan"), 0.0, 0.0])},
        "not a finite number",
    ),
    "too many types": ({"token_type": numbers(types.INT32, [1] * 5)}, "5 elements, expected 4"),
    "an unknown type": (
        {"token_type": numbers(types.INT32, [1, 1, 1, 9])},
        "token_type: 1 to 9, expected 0 to 6",
    ),
    "a byte token that is none": (
        {"token_type": numbers(types.INT32, [6, 1, 1, 6])},
        "byte token b'a'",
    ),
    "a byte token with a minus": (tokenizer(["a", "b", "c", "<0x-1>"]), "byte token b'<0x-1>'"),
    "a merge of one part": ({"merges": texts(["ab"])}, "element 0 is b'ab', expected two parts"),
    "an empty merge": ({"merges": texts(["a b", ""])}, "element 1 is b'', expected two parts"),
    "a merge without its second part": ({"merges": texts(["a "])}, "expected two parts"),
    "merges that are numbers": (
        {"merges": numbers(types.INT32, [1])},
        "merges is of type array of",
    ),
    "bos beyond the vocabulary": ({"bos_token_id": u32(4)}, "bos_token_id: 4, expected"),
    "eos beyond the vocabulary": ({"eos_token_id": u32(2**32 - 1)}, "eos_token_id: 4294967295"),
    "eos of a wrong type": ({"eos_token_id": i32(1)}, "eos_token_id is of type int32"),
    "a pre-tokenizer that nobody knows": (
        {"model": text("gpt2"), "pre": text("qwen\x00"), "merges": texts([])},
        "pre: 'qwen\\x00', expected a pre-tokenizer that llama.cpp knows",
    ),
    "plamo2 without bytes": (
        {"model": text("plamo2")},
        "tokens: no token <0x00>, which the tokenizer plamo2 needs",
    ),
    "the name of a Phi 3 without its tokens": (
        {"general.name": text("my Phi3")},
        "tokens: no </s>, which a general.name with phi-3 needs",
    ),
    "a short charsmap": (
        {"precompiled_charsmap": numbers(types.UINT8, [1])},
        "precompiled_charsmap: shorter than 4 bytes",
    ),
}


def _read(folder: Path, changes: dict[str, Value]) -> GgufHeader:
    full = {k if "." in k else f"tokenizer.ggml.{k}": value for k, value in changes.items()}
    path = folder / "model.gguf"
    path.write_bytes(gguf_file(llama_metadata() | full))
    return read_header(path)


@pytest.mark.parametrize("name", POISON)
def test_a_malformed_vocabulary_is_refused(tmp_path: Path, name: str) -> None:
    changes, message = POISON[name]
    with pytest.raises(InvalidGguf) as caught:
        _read(tmp_path, changes)
    assert message in caught.value.message
    assert "tokenizer.ggml." in caught.value.message


def test_several_empty_tokens_are_allowed(tmp_path: Path) -> None:
    assert _read(tmp_path, tokenizer(["", "a", "", "<0x0A>"])).vocabulary_size == 4


def test_a_merge_may_begin_with_a_space(tmp_path: Path) -> None:
    assert _read(tmp_path, {"merges": texts(["  a", "a  b"])}).vocabulary_size == 4


def test_the_pre_tokenizers_are_those_of_the_installed_library(tmp_path: Path) -> None:
    start_library()
    params = native.llama_model_default_params()
    params.vocab_only = True
    path = tmp_path / "model.gguf"

    def loads(pre: str) -> bool:
        entries = {"model": text("gpt2"), "pre": text(pre), "merges": texts(["a b"])}
        full = {f"tokenizer.ggml.{name}": value for name, value in entries.items()}
        path.write_bytes(gguf_file(llama_metadata() | full))
        model = native.llama_model_load_from_file(str(path).encode(), params)
        if model:
            native.llama_model_free(model)
        return bool(model)

    assert not loads("qwen9")
    assert [pre for pre in sorted(PRE_TOKENIZERS) if not loads(pre)] == []
