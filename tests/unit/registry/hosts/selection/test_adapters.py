from __future__ import annotations

from typing import Any

import pytest

from registry.errors import RemoteRefused
from registry.hosts.selection.adapters import (
    adapter_of,
    base_in_config,
    base_in_header,
    base_in_tags,
)
from registry.hosts.selection.variants import RepositoryFile, variants_of

FILES = [
    RepositoryFile("adapter_model.safetensors", 90, None),
    RepositoryFile("README.md", 5, None),
    RepositoryFile("adapter_config.json", 7, None),
]


def test_the_config_of_an_adapter_comes_before_its_weights() -> None:
    found = adapter_of("u/r", FILES)
    assert found is not None
    assert [entry.path for entry in found.entries] == [FILES[2].path, FILES[0].path]


@pytest.mark.parametrize("missing", [0, 2])
def test_half_an_adapter_is_none(missing: int) -> None:
    assert adapter_of("u/r", [file for file in FILES if file is not FILES[missing]]) is None


def test_a_huge_config_is_refused() -> None:
    with pytest.raises(RemoteRefused, match="adapter_config"):
        adapter_of("u/r", [FILES[0], RepositoryFile("adapter_config.json", 2**30, None)])


@pytest.mark.parametrize("value", ["./base", "/home/me/base", "base", "a/b/c", "../b", 5, None])
def test_a_base_that_is_no_repository_is_none(value: Any) -> None:
    assert base_in_config({"base_model_name_or_path": value}) is None
    assert base_in_tags([f"base_model:adapter:{value}"]) is None
    assert base_in_header({"general.base_model.0.repo_url": f"https://hf.co/{value}"}) is None


def test_the_base_is_read_where_it_is_named() -> None:
    url = "general.base_model.0.repo_url"
    assert base_in_config({"base_model_name_or_path": "u/b-1.5"}) == "u/b-1.5"
    assert base_in_tags(["lora", "base_model:u/x", "base_model:adapter:u/b"]) == "u/b"
    assert base_in_header({url: "https://huggingface.co/u/b"}) == "u/b"
    assert base_in_header({url: "https://example.com/u/b"}) is None
    assert base_in_header({url: "https://[bad"}) is None
    assert base_in_header({url: 7}) is None


@pytest.mark.parametrize("end", ["-bnb-4bit", "-unsloth-bnb-4bit"])
def test_an_adapter_of_four_bits_is_for_the_full_checkpoint_too(end: str) -> None:
    assert base_in_config({"base_model_name_or_path": f"u/Llama-8B{end}"}) == "u/Llama-8B"


@pytest.mark.parametrize("name", ["lora-f16.gguf", "m-lora-f16.gguf", "m-LoRA.gguf", "LoRA-m.gguf"])
def test_adapters_in_gguf_are_no_models_by_their_names(name: str) -> None:
    entries = [RepositoryFile(name, 5, None), RepositoryFile("explora-Q4_0.gguf", 5, None)]
    assert [v.entries[0].path for v in variants_of(entries)] == ["explora-Q4_0.gguf"]
    assert [v.entries[0].path for v in variants_of(entries, adapters=True)] == [name]
