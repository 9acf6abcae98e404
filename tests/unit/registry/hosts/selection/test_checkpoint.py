from __future__ import annotations

import pytest

from registry.errors import RemoteMissing, RemoteRefused
from registry.hosts.selection.checkpoint import checkpoint_of
from registry.hosts.selection.variants import RepositoryFile

SMALL = ("config.json", "tokenizer.json", "README.md")


def entries(*paths: str) -> list[RepositoryFile]:
    return [RepositoryFile(path, 10, None) for path in paths]


def chosen(*paths: str) -> list[str]:
    return [entry.path for entry in checkpoint_of("u/r", entries(*paths)).entries]


def test_the_config_comes_first_and_the_weights_last_in_order() -> None:
    shards = ["model-00002-of-00002.safetensors", "model-00001-of-00002.safetensors"]
    index = "model.safetensors.index.json"
    assert chosen(*shards, "tokenizer.json", index, "config.json", ".gitattributes") == [
        "config.json",
        index,
        "tokenizer.json",
        shards[1],
        shards[0],
    ]


def test_what_makes_no_model_stays_where_it_is() -> None:
    assert chosen(
        *SMALL,
        "model.safetensors",
        "onnx/model.onnx",
        "pytorch_model.bin",
        "original/consolidated.00.pth",
        "training_args.json",
        "1_Pooling/config.json",
    ) == [
        "config.json",
        "1_Pooling/config.json",
        "README.md",
        "tokenizer.json",
        "model.safetensors",
    ]


def test_the_two_files_of_a_tokenizer_come_where_there_is_no_other() -> None:
    pair = ["merges.txt", "vocab.json"]
    assert chosen("config.json", "model.safetensors", *pair)[1:3] == pair
    assert not set(pair) & set(chosen(*SMALL, "model.safetensors", *pair))


def test_of_two_forms_of_the_weights_the_usual_one_is_taken() -> None:
    pieces = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    consolidated = "consolidated.safetensors"
    assert chosen("config.json", consolidated, *pieces) == ["config.json", *pieces]
    assert chosen("config.json", "consolidated.safetensors", "model.safetensors", *pieces) == [
        "config.json",
        "model.safetensors",
    ]


def test_a_missing_shard_is_named() -> None:
    with pytest.raises(RemoteRefused, match=r"model-00002-of-00003\.safetensors is missing"):
        chosen(*SMALL, *(f"model-0000{n}-of-00003.safetensors" for n in (1, 3)))


def test_several_checkpoints_of_unusual_names_are_refused() -> None:
    with pytest.raises(RemoteRefused, match="several checkpoints: a, b"):
        chosen(*SMALL, "b.safetensors", "a.safetensors")


def test_a_huge_file_beside_the_weights_is_refused() -> None:
    files = [
        *entries("config.json", "model.safetensors"),
        RepositoryFile("tokenizer.json", 2**40, None),
    ]
    with pytest.raises(RemoteRefused, match=r"tokenizer\.json"):
        checkpoint_of("u/r", files)


def test_files_that_leave_their_folder_are_none() -> None:
    outside = ["additional_chat_templates/../../x.jinja", "/a_Pooling/config.json", "README.md\n"]
    assert chosen("config.json", "model.safetensors", *outside) == [
        "config.json",
        "model.safetensors",
    ]


def test_thousands_of_files_are_refused() -> None:
    templates = [f"additional_chat_templates/{number}.jinja" for number in range(1100)]
    with pytest.raises(RemoteRefused, match="1102 files"):
        chosen("config.json", "model.safetensors", *templates)


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (("adapter_config.json",), "adapter_model.safetensors is missing"),
        (("adapter_config.json", "adapter_model.bin"), "a pickle"),
        (("config.json", "pytorch_model.bin"), "a pickle"),
        (("README.md",), "no safetensors"),
        (("unet/model.safetensors", "config.json"), "no safetensors"),
        (("model.safetensors",), "no safetensors"),
    ],
)
def test_a_repository_without_a_model_says_what_it_holds(
    paths: tuple[str, ...], words: str
) -> None:
    with pytest.raises(RemoteMissing, match=words):
        chosen(*paths)
