"""Real vocabularies, taken apart into the files of Hugging Face, convert to what they were."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from modelfile.convert.vocabulary import pretokenizers, read_vocabulary
from modelfile.convert.vocabulary.tokens import TokenType
from registry.formats.gguf.reader import read_header
from registry.formats.gguf.values import LazyArray
from tests.vocabulary_files import native_ids, vocabulary_file

SHARED = Path(__file__).parents[6] / "shared" / "vocab"
EXPRESSIONS = {"llama-bpe": pretokenizers.LLAMA3, "qwen2": pretokenizers.QWEN2}


def source(kind: str) -> Mapping[str, Any]:
    path = SHARED / f"ggml-vocab-{kind}.gguf"
    if not path.exists():
        pytest.skip("the vocabularies are not at hand")
    start = "tokenizer.ggml."
    return {
        key.removeprefix(start): value.load() if isinstance(value, LazyArray) else value
        for key, value in read_header(path).metadata.items()
        if key.startswith(start)
    }


def byte_level(kind: str, known: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    texts, types = known["tokens"], known["token_type"]
    split = {"Regex": EXPRESSIONS[kind]}
    steps = [
        {"type": "Split", "pattern": split, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
    ]
    tokenizer = {
        "added_tokens": [
            {"id": id, "content": text, "special": types[id] == TokenType.CONTROL}
            for id, text in enumerate(texts)
            if types[id] in (TokenType.CONTROL, TokenType.USER_DEFINED)
        ],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "model": {
            "type": "BPE",
            "ignore_merges": kind == "llama-bpe",
            "vocab": {text: id for id, text in enumerate(texts) if types[id] == TokenType.NORMAL},
            "merges": [merge.split(" ") for merge in known["merges"]],
        },
    }
    config = {f"{role}_token_id": known[f"{role}_token_id"] for role in ("bos", "eos")}
    return written(folder, {"tokenizer.json": tokenizer, "config.json": config})


def word_pieces(known: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    def line(text: str, type: int) -> str:
        if type == TokenType.CONTROL:
            return text
        return text[1:] if text.startswith("▁") else f"##{text}"

    lines = map(line, known["tokens"], known["token_type"])
    path = folder / "vocab.txt"
    path.write_text("".join(f"{text}\n" for text in lines), encoding="utf-8")
    return {"vocab.txt": path}


def pieces(known: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    path = folder / "tokenizer.model"
    content = b""
    for text, score, type in zip(
        known["tokens"], known["scores"], known["token_type"], strict=True
    ):
        data = text.encode()
        fields = b"\x0a" + varint(len(data)) + data + b"\x15" + struct.pack("<f", score)
        fields += b"\x18" + varint(type)
        content += b"\x0a" + varint(len(fields)) + fields
    path.write_bytes(content + b"\x12\x02\x18\x02" + b"\x1a\x04\x18\x01\x20\x00")
    return {"tokenizer.model": path}


def llama_json(known: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    """The tokenizer.json that Hugging Face makes of these pieces."""
    texts, types = known["tokens"], known["token_type"]
    ids = {text: id for id, text in enumerate(texts)}
    normal = {text for text in texts if types[ids[text]] == TokenType.NORMAL}
    merges = []
    scores = dict(zip(texts, known["scores"], strict=True))
    for text in sorted(texts, key=lambda text: -scores[text]):
        cuts = ((text[:place], text[place:]) for place in range(1, len(text)))
        pairs = [pair for pair in cuts if pair[0] in normal and pair[1] in normal]
        merges += sorted(pairs, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
    tokenizer = {
        "added_tokens": [{"id": id, "content": texts[id], "special": True} for id in range(3)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "unk_token": "<unk>",
            "vocab": ids,
            "merges": [f"{first} {second}" for first, second in merges],
        },
    }
    return written(folder, {"tokenizer.json": tokenizer})


def written(folder: Path, contents: Mapping[str, Any]) -> dict[str, Path]:
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return {name: folder / name for name in contents}


def varint(value: int) -> bytes:
    content = b""
    while value > 0x7F:
        content += bytes([value & 0x7F | 0x80])
        value >>= 7
    return content + bytes([value])


def check(kind: str, files: dict[str, Path], size: int, folder: Path) -> dict[str, Any]:
    """llama.cpp gives the vectors' ids; the values by their keys."""
    values = read_vocabulary(files, size)
    target = folder / "vocabulary.gguf"
    target.write_bytes(vocabulary_file(values))
    path = SHARED / f"ggml-vocab-{kind}.gguf"
    texts = Path(f"{path}.inp").read_text("utf-8").split("\n__ggml_vocab_test__\n")
    lines = Path(f"{path}.out").read_text().splitlines()
    wanted = [[int(token) for token in line.split()] for line in lines]
    assert len(wanted) == 46
    found = native_ids(target, texts[: len(wanted)])
    assert dict(zip(texts, found, strict=False)) == dict(zip(texts, wanted, strict=False))
    return {value.key.removeprefix("tokenizer.ggml."): value.value for value in values}


@pytest.mark.parametrize("kind", ["llama-bpe", "qwen2"])
def test_a_byte_level_vocabulary_converts(kind: str, tmp_path: Path) -> None:
    known = source(kind)
    files = byte_level(kind, known, tmp_path)
    values = check(kind, files, len(known["tokens"]), tmp_path)
    for key in ("pre", "tokens", "token_type", "merges", "bos_token_id", "eos_token_id"):
        assert values[key] == known[key], key


def test_a_sentencepiece_vocabulary_converts(tmp_path: Path) -> None:
    known = source("llama-spm")
    values = check("llama-spm", pieces(known, tmp_path), len(known["tokens"]), tmp_path)
    for key in ("tokens", "scores", "token_type", "bos_token_id", "unknown_token_id"):
        assert values[key] == known[key], key


def test_byte_fallback_bpe_converts_without_the_sentencepiece_file(tmp_path: Path) -> None:
    known = source("llama-spm")
    values = check("llama-spm", llama_json(known, tmp_path), len(known["tokens"]), tmp_path)
    assert values["tokens"] == known["tokens"]
    assert values["token_type"] == known["token_type"]


def test_a_wordpiece_vocabulary_converts(tmp_path: Path) -> None:
    known = source("bert-bge")
    values = check("bert-bge", word_pieces(known, tmp_path), len(known["tokens"]), tmp_path)
    for key in ("tokens", "mask_token_id", "cls_token_id", "seperator_token_id"):
        assert values[key] == known[key], key
