"""vocab.json and merges.txt give the same vocabulary as the tokenizer.json made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from modelfile.convert.vocabulary import read_vocabulary
from modelfile.errors import ConvertError

TRAINED = Path(__file__).parent / "trained"


def taken_apart(folder: Path, name: str, class_name: str | None) -> dict[str, Path]:
    """A trained tokenizer.json as the files that come before it."""
    whole: dict[str, Any] = json.loads((TRAINED / f"{name}.json").read_text("utf-8"))
    merges = [
        each if isinstance(each, str) else " ".join(each) for each in whole["model"]["merges"]
    ]
    config = {
        "tokenizer_class": class_name,
        "added_tokens_decoder": {str(token["id"]): token for token in whole["added_tokens"]},
    }
    texts = {
        "vocab.json": json.dumps(whole["model"]["vocab"]),
        "merges.txt": "\n".join(["#version: 0.2", *merges, ""]),
        "tokenizer_config.json": json.dumps(config),
    }
    for file, text in texts.items():
        (folder / file).write_text(text, "utf-8")
    return {file: folder / file for file in texts}


@pytest.mark.parametrize(
    ("name", "class_name"),
    [("qwen2", "Qwen2Tokenizer"), ("qwen2", "Qwen2TokenizerFast"), ("gpt-2", "GPT2Tokenizer")],
)
def test_the_two_files_give_what_the_tokenizer_json_gives(
    name: str, class_name: str, tmp_path: Path
) -> None:
    size = json.loads((TRAINED / f"{name}.ids").read_text())["size"]
    files = taken_apart(tmp_path, name, class_name)
    fast = {"tokenizer.json": TRAINED / f"{name}.json"}
    config = {"tokenizer_config.json": files["tokenizer_config.json"]}
    assert read_vocabulary(files, size) == read_vocabulary(fast | config, size)


@pytest.mark.parametrize("class_name", [None, "OtherTokenizer"])
def test_a_class_that_is_not_known_is_refused_by_name(
    class_name: str | None, tmp_path: Path
) -> None:
    files = taken_apart(tmp_path, "qwen2", class_name)
    with pytest.raises(ConvertError, match=rf"{class_name or 'missing'}.*Qwen2Tokenizer"):
        read_vocabulary(files, 421)


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt"])
def test_one_of_the_two_alone_is_refused(name: str, tmp_path: Path) -> None:
    files = taken_apart(tmp_path, "qwen2", "Qwen2Tokenizer")
    del files[name]
    with pytest.raises(ConvertError, match=f"without {name}"):
        read_vocabulary(files, 421)


def test_deepseek_llm_with_tokens_of_digits_is_refused(tmp_path: Path) -> None:
    whole = json.loads((TRAINED / "deepseek-llm.json").read_text("utf-8"))
    whole["model"]["vocab"]["12"] = 9999
    whole["model"]["merges"].append(["1", "2"])
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(whole), "utf-8")
    with pytest.raises(ConvertError, match="'12' is a token of digits"):
        read_vocabulary({"tokenizer.json": path}, 10_000)
