"""The vocabulary turns text into tokens and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_cpp import llama_cpp as native

from runner.backends.backend import LoadedBackend, Tokenizer
from runner.backends.host_sampling.library import start_library
from runner.backends.host_sampling.tokenizer import LlamaCppTokenizer

SHARED = Path(__file__).parents[6] / "shared" / "vocab"


@pytest.fixture
def tokenizer(open_model: Callable[..., LoadedBackend]) -> Tokenizer:
    return open_model().tokenizer


def decode(tokenizer: Tokenizer, tokens: list[int]) -> str:
    return b"".join(map(tokenizer.piece, tokens)).decode()


@settings(
    derandomize=True,
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.text(max_size=60))
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.encode(text, add_bos=False, parse_special=False)
    assert decode(tokenizer, tokens) == text


def test_text_with_a_zero_byte_comes_back(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("a\0b", add_bos=False, parse_special=False)
    assert decode(tokenizer, tokens) == "a\0b"


def test_half_a_surrogate_pair_becomes_the_replacement_character(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("a\ud83d", add_bos=False, parse_special=False)
    assert decode(tokenizer, tokens) == "a\ufffd"
    pair = tokenizer.encode("\ud83d\ude00", add_bos=False, parse_special=False)
    assert decode(tokenizer, pair) == "😀"


def test_a_character_is_spread_over_byte_tokens(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("é", add_bos=False, parse_special=False)
    assert [tokenizer.piece(token) for token in tokens] == [b"\xc3", b"\xa9"]


def test_control_tokens_are_text_unless_they_are_asked_for(tokenizer: Tokenizer) -> None:
    text = "<|im_start|>hearth<|im_end|>"
    special = tokenizer.encode(text, add_bos=False, parse_special=True)
    assert (special[0], special[-1]) == (3, 4)
    assert decode(tokenizer, special) == "hearth"
    plain = tokenizer.encode(text, add_bos=False, parse_special=False)
    assert not {3, 4} & set(plain)
    assert decode(tokenizer, plain) == text


def test_bos_is_added_only_when_asked_for(tokenizer: Tokenizer) -> None:
    assert tokenizer.bos == 1
    assert tokenizer.encode("hearth", add_bos=True, parse_special=False)[0] == 1
    assert tokenizer.encode("hearth", add_bos=False, parse_special=False)[0] != 1


def test_the_empty_text_is_no_token(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("", add_bos=False, parse_special=True) == []
    assert tokenizer.encode("", add_bos=True, parse_special=True) == [1]


def test_end_tokens_end_and_others_do_not(tokenizer: Tokenizer) -> None:
    assert tokenizer.eos == 4
    assert tokenizer.is_end(4)
    assert not tokenizer.is_end(1)
    assert not tokenizer.is_end(100)


def test_control_tokens_have_a_text_but_no_piece(tokenizer: Tokenizer) -> None:
    assert tokenizer.text(4) == "<|im_end|>"
    assert tokenizer.piece(4) == b""


def test_a_piece_is_the_same_the_second_time(tokenizer: Tokenizer) -> None:
    token = 267
    assert tokenizer.text(token) == "hearth"
    assert tokenizer.piece(token) == tokenizer.piece(token) == b"hearth"


@pytest.mark.parametrize("token", [270, -1, -300, 10**12])
def test_tokens_outside_the_vocabulary_have_no_piece_and_no_text(
    tokenizer: Tokenizer, token: int
) -> None:
    with pytest.raises(IndexError):
        tokenizer.piece(token)
    with pytest.raises(IndexError):
        tokenizer.text(token)


def test_no_token_outside_the_vocabulary_ends(tokenizer: Tokenizer) -> None:
    assert not tokenizer.is_end(-1)
    assert not tokenizer.is_end(270)


@pytest.mark.parametrize("kind", ["llama-spm", "llama-bpe", "qwen2", "bert-bge"])
def test_real_vocabularies_encode_as_their_vectors_say(kind: str) -> None:
    path = SHARED / f"ggml-vocab-{kind}.gguf"
    if not path.exists():
        pytest.skip("the vocabularies are not at hand")
    start_library()
    params = native.llama_model_default_params()
    params.vocab_only = True
    model = native.llama_model_load_from_file(str(path).encode(), params)
    assert model
    try:
        tokenizer = LlamaCppTokenizer(native.llama_model_get_vocab(model))
        pairs = vectors(path)
        assert len(pairs) == 46
        for text, expected in pairs:
            assert tokenizer.encode(text, add_bos=False, parse_special=False) == expected, text
    finally:
        native.llama_model_free(model)


def vectors(path: Path) -> list[tuple[str, list[int]]]:
    texts = Path(f"{path}.inp").read_text().split("\n__ggml_vocab_test__\n")
    lines = Path(f"{path}.out").read_text().splitlines()
    return [
        (text, [int(token) for token in line.split()])
        for text, line in zip(texts, lines, strict=False)
    ]
