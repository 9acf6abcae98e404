"""Converted vocabularies give llama.cpp the ids of the libraries they come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from modelfile.convert.vocabulary import read_vocabulary
from tests.vocabulary_files import native_ids, vocabulary_file

TRAINED = Path(__file__).parent / "trained"
# llama.cpp takes the Thai vowel signs for no letters here, composes Hangul syllables that the
# library leaves taken apart, and strips spaces only where the library strips tabs and newlines.
DIFFERENT = {
    ("gpt-4o", "สวัสดี"),
    ("tekken", "สวัสดี"),
    ("wordpiece", "안녕하세요"),
    ("unigram", "\t\ttabs"),
    ("unigram", "\n"),
    ("unigram", "\n\n \n"),
    ("unigram", "def f(x):\n    return x\n\n\n    # end  \n"),
}
RARE = ("jais-2", "exaone-moe")
NAMES = sorted(path.stem for path in TRAINED.glob("*.ids"))
SPECIAL = [
    name for name in NAMES if not name.startswith(("spm-", "deepseek-coder", "deepseek-llm"))
]


def cases(names: list[str]) -> list[Any]:
    """Each test is a process of llama.cpp, so that the rare ones run with the slow tests."""
    marks = pytest.mark.slow
    return [pytest.param(name, marks=marks if name in RARE else ()) for name in names]


def converted(name: str, target: Path) -> dict[str, Any]:
    """Write the GGUF of a trained vocabulary; its ids as the library gave them."""
    golden: dict[str, Any] = json.loads((TRAINED / f"{name}.ids").read_text())
    path = TRAINED / f"{name}.json"
    files = {"tokenizer.json": path}
    if not path.exists():
        files = {"tokenizer.model": path.with_suffix(".model")}
    target.write_bytes(vocabulary_file(read_vocabulary(files, golden["size"])))
    return golden


@pytest.mark.parametrize("name", cases(NAMES))
def test_llama_cpp_finds_the_ids_that_the_library_finds(name: str, tmp_path: Path) -> None:
    golden = converted(name, tmp_path / "vocabulary.gguf")
    texts = [text for text, _ in golden["plain"] if (name, text) not in DIFFERENT]
    found = native_ids(tmp_path / "vocabulary.gguf", texts)
    known = dict(golden["plain"])
    assert dict(zip(texts, found, strict=True)) == {text: known[text] for text in texts}


@pytest.mark.parametrize("name", cases(SPECIAL))
def test_special_tokens_are_found_and_added_as_the_library_does(name: str, tmp_path: Path) -> None:
    golden = converted(name, tmp_path / "vocabulary.gguf")
    texts = [text for text, _ in golden["special"]]
    found = native_ids(tmp_path / "vocabulary.gguf", texts, add_special=True, parse_special=True)
    assert dict(zip(texts, found, strict=True)) == dict(golden["special"])
