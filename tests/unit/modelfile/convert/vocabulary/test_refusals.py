"""Files that are damaged, contradict each other or ask for the impossible are refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfile.convert.vocabulary import read_vocabulary
from modelfile.convert.vocabulary.pretokenizers import QWEN2
from modelfile.convert.vocabulary.sentencepiece_file import parse_sentencepiece
from modelfile.errors import ConvertError

Write = Callable[..., dict[str, Path]]
SIZE = 8


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(**contents: Any) -> dict[str, Path]:
        files = {}
        for key, content in contents.items():
            name = f"{key}.json"
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            (tmp_path / name).write_bytes(data)
            files[name] = tmp_path / name
        return files

    return put


def tokenizer(**model: Any) -> dict[str, Any]:
    """A byte-level BPE of seven tokens."""
    sound = {
        "type": "BPE",
        "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4},
        "merges": ["a b", "ab c"],
    }
    split = {"Regex": QWEN2}
    return {
        "added_tokens": [
            {"id": 5, "content": "<|end|>", "special": True},
            {"id": 6, "content": "<tool>", "special": False},
        ],
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": split, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        },
        "model": sound | model,
    }


def values(files: Mapping[str, Path], size: int = SIZE) -> dict[str, Any]:
    return {value.key: value.value for value in read_vocabulary(files, size)}


def test_a_sound_vocabulary_is_filled_up_to_its_size(write: Write) -> None:
    found = values(write(tokenizer=tokenizer()))
    assert found["tokenizer.ggml.tokens"] == [
        "a",
        "b",
        "c",
        "ab",
        "abc",
        "<|end|>",
        "<tool>",
        "[PAD7]",
    ]
    assert found["tokenizer.ggml.token_type"] == [1, 1, 1, 1, 1, 3, 4, 5]
    assert found["tokenizer.ggml.eos_token_id"] == 5
    assert found["tokenizer.ggml.add_bos_token"] is False


def test_merges_may_be_pairs(write: Write) -> None:
    found = values(write(tokenizer=tokenizer(merges=[["a", "b"], ["ab", "c"]])))
    assert found["tokenizer.ggml.merges"] == ["a b", "ab c"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"vocab": {"a": -1}}, "vocab: 'a': '-1', expected an id from 0"),
        ({"vocab": {"a": True}}, "expected an id from 0"),
        ({"vocab": {"a": 1.5}}, "expected an id from 0"),
        ({"vocab": {"a": 0, "b": 0}, "merges": []}, "has the id 0, which is 'a'"),
        ({"vocab": {"a": 8}, "merges": []}, "id 8, but config.json makes the vocabulary 8 tokens"),
        ({"vocab": {"a": 5}, "merges": []}, "id 5, which is '<|end|>' in tokenizer.json"),
        ({"vocab": {"<tool>": 0}, "merges": []}, "has the ids 0 and 6"),
        ({"vocab": {}}, "vocab: 0 tokens"),
        ({"vocab": {"": 0}, "merges": []}, "a token without a text"),
        ({"vocab": []}, "vocab: '\\[\\]', expected an object"),
        ({"merges": ["a b", "a b"]}, "'a b' occurs twice"),
        ({"merges": ["a x"]}, "needs 'x', which is not a token"),
        ({"merges": ["a c"]}, "needs 'ac', which is not a token"),
        ({"merges": ["a"]}, "expected two tokens"),
        ({"merges": [["a", 1]]}, "expected two tokens"),
        ({"merges": {"a": "b"}}, "expected a list"),
        ({"dropout": 0.5}, "dropout: '0.5' is not supported"),
        ({"end_of_word_suffix": "</w>"}, "end_of_word_suffix"),
        ({"type": "WordLevel"}, "type 'WordLevel' is not supported"),
        ({"type": "BPE", "byte_fallback": True}, "there is no token <0x00>"),
    ],
)
def test_a_bad_model_is_refused_with_its_value(
    write: Write, model: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConvertError, match=message.replace("|", "\\|")):
        values(write(tokenizer=tokenizer(**model)))


def test_a_normalizer_of_no_steps_is_none(write: Write) -> None:
    known = tokenizer() | {"normalizer": {"type": "Sequence", "normalizers": []}}
    assert values(write(tokenizer=known))
    known["normalizer"] = {"type": "Lowercase"}
    with pytest.raises(ConvertError, match="only NFC"):
        values(write(tokenizer=known))


def test_control_tokens_without_an_embedding_are_left_out(write: Write) -> None:
    known = tokenizer()
    known["added_tokens"].append({"id": 8, "content": "<image>", "special": True})
    assert len(values(write(tokenizer=known))["tokenizer.ggml.tokens"]) == SIZE
    known["added_tokens"][-1]["special"] = False
    with pytest.raises(ConvertError, match="id 8, but config"):
        values(write(tokenizer=known))


def test_added_tokens_may_not_take_the_place_of_text(write: Write) -> None:
    trained = {"tokenizer.model": Path(__file__).parent / "trained" / "spm-bpe.model"}
    added = {"480": {"content": "<tool>", "special": False}, "1": {"content": "<bos>"}}
    files = write(tokenizer_config={"added_tokens_decoder": added, "bos_token": "<bos>"})
    found = values(trained | files, 481)
    assert found["tokenizer.ggml.tokens"][480] == "<tool>"
    assert found["tokenizer.ggml.token_type"][480] == 4
    assert found["tokenizer.ggml.bos_token_id"] == 1
    files = write(tokenizer_config={"added_tokens_decoder": {"470": {"content": "<tool>"}}})
    with pytest.raises(ConvertError, match="'<tool>': id 470 is"):
        values(trained | files, 481)


def test_added_tokens_of_two_files_must_agree(write: Write) -> None:
    other = {"added_tokens_decoder": {"6": {"content": "<call>"}}}
    with pytest.raises(ConvertError, match="id 6, which is '<tool>' in "):
        values(write(tokenizer=tokenizer(), tokenizer_config=other))


def test_an_unknown_expression_is_shown_and_not_replaced(write: Write) -> None:
    known = tokenizer()
    known["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": r"\d+|\D+"}
    with pytest.raises(ConvertError, match=r"no pre-tokenizer for \\d\+\|\\D\+"):
        values(write(tokenizer=known))


def test_taking_whole_words_is_refused_only_where_it_changes_tokens(write: Write) -> None:
    assert values(write(tokenizer=tokenizer(ignore_merges=True)))
    with pytest.raises(ConvertError, match="the merges do not make 'abc'"):
        values(write(tokenizer=tokenizer(ignore_merges=True, merges=["a b"])))


def test_a_special_token_that_is_none_is_refused(write: Write) -> None:
    files = write(tokenizer=tokenizer(), tokenizer_config={"eos_token": "</s>"})
    with pytest.raises(ConvertError, match="eos_token: '</s>' is not a token"):
        values(files)


def test_a_special_id_outside_the_vocabulary_is_refused(write: Write) -> None:
    files = write(tokenizer=tokenizer(), generation_config={"eos_token_id": [5, 8]})
    with pytest.raises(ConvertError, match="expected an id below 8"):
        values(files)


def test_a_bos_that_must_be_added_must_exist(write: Write) -> None:
    files = write(tokenizer=tokenizer(), tokenizer_config={"add_bos_token": True})
    with pytest.raises(ConvertError, match="there is no bos_token"):
        values(files)


def test_several_ends_become_eos_and_eot(write: Write) -> None:
    files = write(tokenizer=tokenizer(), generation_config={"eos_token_id": [6, 5]})
    found = values(files)
    assert found["tokenizer.ggml.eos_token_id"] == 6
    assert found["tokenizer.ggml.eot_token_id"] == 5


def test_the_post_processor_decides_where_the_config_is_silent(write: Write) -> None:
    known = tokenizer()
    single = [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}, {"Sequence": {"id": "A"}}]
    known["post_processor"] = {"type": "TemplateProcessing", "single": single}
    found = values(write(tokenizer=known))
    assert found["tokenizer.ggml.add_bos_token"] is True
    assert found["tokenizer.ggml.bos_token_id"] == 5
    found = values(write(tokenizer=known, tokenizer_config={"add_bos_token": False}))
    assert found["tokenizer.ggml.add_bos_token"] is False


def test_chat_templates_are_taken_from_all_their_places(write: Write, tmp_path: Path) -> None:
    listed = [{"name": "default", "template": "old"}, {"name": "rag", "template": "r"}]
    files = write(tokenizer=tokenizer(), tokenizer_config={"chat_template": listed})
    for name in ("chat_template.jinja", "additional_chat_templates/tool_use.jinja"):
        path = tmp_path / name.replace("/", "-")
        path.write_text(name)
        files[name] = path
    found = values(files)
    assert found["tokenizer.chat_template"] == "chat_template.jinja"
    assert found["tokenizer.chat_template.rag"] == "r"
    assert found["tokenizer.chat_template.tool_use"].endswith("tool_use.jinja")
    assert found["tokenizer.chat_templates"] == ["rag", "tool_use"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b'{"a": 1, "a": 2}', "occurs twice"),
        (b"\xff", "is not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"{}", "no tokenizer beside the weights"),
    ],
)
def test_a_damaged_file_is_named(write: Write, content: bytes, message: str) -> None:
    with pytest.raises(ConvertError, match=message) as caught:
        values(write(tokenizer=content))
    assert "tokenizer.json" in caught.value.message


def refusal_of(content: bytes) -> str | None:
    """What the reader of SentencePiece files says against these bytes."""
    try:
        parse_sentencepiece(content, "tokenizer.model")
    except ConvertError as error:
        return error.message
    return None


@given(st.binary(max_size=200))
def test_bytes_that_are_no_sentencepiece_file_are_read_or_refused(content: bytes) -> None:
    message = refusal_of(content)
    assert message is None or message.startswith("tokenizer.model: ")


@given(st.lists(st.tuples(st.integers(0, 8000), st.integers(0, 255)), min_size=1, max_size=3))
def test_a_damaged_sentencepiece_file_is_read_or_refused(changes: list[tuple[int, int]]) -> None:
    content = bytearray((Path(__file__).parent / "trained" / "spm-bpe.model").read_bytes())
    for place, byte in changes:
        content[place % len(content)] = byte
    message = refusal_of(bytes(content))
    assert message is None or message.startswith("tokenizer.model: ")


@given(st.integers(0, 8000))
def test_a_cut_sentencepiece_file_is_read_or_refused(length: int) -> None:
    content = (Path(__file__).parent / "trained" / "spm-bpe.model").read_bytes()[:length]
    message = refusal_of(content)
    assert message is None or message.startswith("tokenizer.model: ")
