from __future__ import annotations

import pytest

from registry.hosts.selection.model_files import select_files
from registry.hosts.selection.variants import RepositoryFile

WHISPER = ["model.bin", "config.json", "tokenizer.json", "vocabulary.txt"]


def chosen(*paths: str) -> list[str]:
    entries = [RepositoryFile(path, 10, None) for path in paths]
    return [entry.path for entry in select_files("u/r", entries, None, 1 << 30).entries]


def test_whisper_of_ctranslate2_comes_with_its_weights_last() -> None:
    assert chosen(".gitattributes", "README.md", *WHISPER, "preprocessor_config.json") == [
        "config.json",
        "tokenizer.json",
        "vocabulary.txt",
        "preprocessor_config.json",
        "model.bin",
    ]


def test_the_one_voice_comes_with_its_json() -> None:
    assert chosen("a.onnx", "a.onnx.json", "README.md") == ["a.onnx.json", "a.onnx"]


def test_a_checkpoint_with_onnx_files_stays_a_checkpoint() -> None:
    found = chosen("config.json", "model.safetensors", "model.onnx", "tokenizer.json")
    assert found[-1] == "model.safetensors"


@pytest.mark.parametrize("missing", WHISPER)
def test_an_incomplete_folder_is_no_speech_model(missing: str) -> None:
    with pytest.raises(Exception, match="u/r"):
        chosen(*(name for name in WHISPER if name != missing))
