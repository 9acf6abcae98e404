"""The shipped file: small, complete, with one tokenizer for llama.cpp and the training."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from gguf import GGUFReader

from registry.builtin import ember
from tests.ember import parity
from tests.ember.chat import TEMPLATE_PATH
from tests.ember.tokenizer import IM_END_ID, Kind, Tokenizer

PATH = Path(ember.__file__).parent / "ember.gguf"
LARGEST_BYTES = 12_000_000
MOST_PARAMETERS = 8_000_000


@pytest.fixture(scope="module")
def reader() -> GGUFReader:
    """The shipped file, opened."""
    return GGUFReader(PATH)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """The tokenizer stored in the shipped file."""
    return parity.tokenizer_of(PATH)


def _value(reader: GGUFReader, key: str) -> object:
    return reader.fields[key].contents()


def test_the_file_and_the_model_are_small(reader: GGUFReader) -> None:
    assert PATH.stat().st_size <= LARGEST_BYTES
    assert sum(math.prod(map(int, tensor.shape)) for tensor in reader.tensors) <= MOST_PARAMETERS


def test_the_metadata_says_what_it_is(reader: GGUFReader) -> None:
    assert _value(reader, "general.architecture") == "llama"
    assert _value(reader, "general.name") == "ember"
    assert _value(reader, "general.license") == "mit"
    context = _value(reader, "llama.context_length")
    assert isinstance(context, int)
    assert context >= 2048
    assert _value(reader, "tokenizer.ggml.eos_token_id") == IM_END_ID


def test_the_file_carries_the_template_of_the_training(reader: GGUFReader) -> None:
    assert _value(reader, "tokenizer.chat_template") == TEMPLATE_PATH.read_text()


def test_encoding_loses_nothing(tokenizer: Tokenizer) -> None:
    for text in parity.texts(300):
        assert tokenizer.decode(tokenizer.encode(text)) == text.replace("▁", " ")


def test_digits_are_single_and_words_are_cut_alike_everywhere(tokenizer: Tokenizer) -> None:
    assert [tokenizer.tokens[i] for i in tokenizer.encode("2048")] == list("2048")
    for word in ("lantern", "Zanzibar", "quok"):
        alone = [tokenizer.tokens[i] for i in tokenizer.encode(word)]
        quoted = [tokenizer.tokens[i] for i in tokenizer.encode(f'"{word}"')]
        spaced = [tokenizer.tokens[i] for i in tokenizer.encode(f"a {word}")]
        assert quoted[1:-1] == alone
        assert "".join(spaced) == "a▁" + "".join(alone)


def test_tool_tags_are_visible_and_turn_marks_are_not(tokenizer: Tokenizer) -> None:
    kinds = dict(zip(tokenizer.tokens, tokenizer.kinds, strict=True))
    assert kinds["<tool_call>"] == kinds["</tool_call>"] == Kind.USER_DEFINED
    assert kinds["<|im_start|>"] == kinds["<|im_end|>"] == Kind.CONTROL


def test_llama_cpp_cuts_texts_into_the_same_tokens() -> None:
    pytest.importorskip("llama_cpp")
    assert parity.differences(PATH, 400) == []
