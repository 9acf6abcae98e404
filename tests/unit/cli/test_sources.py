"""Which files FROM and ADAPTER name, and what is refused before anything is read."""

from __future__ import annotations

import json
import os
import socket
import struct
from pathlib import Path

import pytest

from cli.errors import CliError
from cli.sources import find

HEADER = b'{"a":{}}'
SAFETENSORS = struct.pack("<Q", len(HEADER)) + HEADER


def write(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        content = SAFETENSORS if name.endswith(".safetensors") else b"{}"
        (folder / name).write_bytes(b"GGUF...." if name.endswith(".gguf") else content)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file that begins like a model."""
    return write(tmp_path, "model.gguf") / "model.gguf"


@pytest.mark.parametrize("name", ["model.gguf", "./model.gguf", "../{folder}/model.gguf"])
def test_a_path_is_seen_from_the_folder_of_the_modelfile(
    model: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    found = find(name.format(folder=model.parent.name), model.parent)
    assert found is not None
    assert found["model.gguf"].samefile(model)


def test_an_absolute_path_is_taken_as_it_is(model: Path) -> None:
    assert find(str(model), Path("/nowhere")) == {"model.gguf": model}


@pytest.mark.parametrize("name", ["ember", "hf.co/org/repo:Q4_K_M", "https://host/x.gguf"])
def test_what_is_no_path_is_a_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "ember").mkdir()
    assert find(name, tmp_path) is None


def test_a_folder_with_a_model_wins_over_a_name(tmp_path: Path) -> None:
    write(tmp_path / "ember", "weights.gguf")
    assert find("ember", tmp_path) == {"weights.gguf": tmp_path / "ember" / "weights.gguf"}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"/m\.gguf, named by FROM, does not exist"):
        find("./m.gguf", tmp_path)


def test_pipes_devices_and_sockets_are_refused_without_opening(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "sock"))
        for name, what in (("./fifo", "pipe"), ("./sock", "socket"), ("/dev/zero", "device")):
            with pytest.raises(CliError, match=what):
                find(name, tmp_path)


def test_a_link_out_of_the_folder_is_refused_and_the_target_named(
    model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "weights.gguf").symlink_to(model)
    with pytest.raises(CliError, match=rf"link to {model}.*write its own path"):
        find("./weights.gguf", folder)
    found = find("../model.gguf", folder)
    assert found is not None
    assert found["model.gguf"].samefile(model)


def test_a_link_out_of_a_folder_of_safetensors_is_refused(model: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "hf", "model.safetensors")
    (folder / "config.json").symlink_to(model)
    for text in (".", str(folder)):
        with pytest.raises(CliError, match=r"config\.json is a link to"):
            find(text, folder)


def test_a_snapshot_of_hugging_faces_cache_may_be_named(tmp_path: Path) -> None:
    repository = tmp_path / "models--org--repo"
    snapshot = repository / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    blobs = write(repository / "blobs", "weights.safetensors")
    (snapshot / "model.safetensors").symlink_to(blobs / "weights.safetensors")
    assert find(str(snapshot), Path("/")) == {"model.safetensors": snapshot / "model.safetensors"}


def test_a_snapshot_may_have_folders_and_content_that_repositories_share(tmp_path: Path) -> None:
    cache = tmp_path / "hub"
    snapshot = cache / "models--org--repo" / "snapshots" / "0123"
    blobs, shared = cache / "models--org--repo" / "blobs", cache / "blobs" / "ab" / ("ab" * 32)
    for folder in (snapshot / "1_Pooling", blobs, shared.parent):
        folder.mkdir(parents=True)
    shared.write_bytes(SAFETENSORS)
    (blobs / "weights").symlink_to(shared)
    (blobs / "config").write_bytes(b"{}")
    (snapshot / "model.safetensors").symlink_to("../../blobs/weights")
    (snapshot / "1_Pooling" / "config.json").symlink_to("../../../blobs/config")
    (cache / "repo").symlink_to(snapshot)
    for text, folder in (
        (str(snapshot), Path("/")),
        ("./snapshots/0123", snapshot.parent.parent),
        (".", snapshot),
        ("../repo", cache / "blobs"),
    ):
        assert set(find(text, folder) or {}) == {"model.safetensors", "1_Pooling/config.json"}


@pytest.mark.parametrize("blobs", ["a link", "a folder"])
def test_a_snapshot_gives_nothing_of_elsewhere(tmp_path: Path, blobs: str) -> None:
    secret = write(tmp_path / "secrets", "key.safetensors") / "key.safetensors"
    snapshot = tmp_path / "package" / "models--org--repo" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    if blobs == "a link":
        (snapshot.parent.parent / "blobs").symlink_to(secret.parent)
    else:
        (snapshot.parent.parent / "blobs").mkdir()
        (snapshot.parent.parent / "blobs" / secret.name).symlink_to(secret)
    (snapshot / "model.safetensors").symlink_to(f"../../blobs/{secret.name}")
    with pytest.raises(CliError, match=f"is a link to {secret}, outside the folder"):
        find("./models--org--repo/snapshots/0123", tmp_path / "package")


def test_a_link_inside_the_folder_is_followed(model: Path, tmp_path: Path) -> None:
    (tmp_path / "link.gguf").symlink_to("model.gguf")
    assert find("link.gguf", tmp_path) == {"link.gguf": tmp_path / "link.gguf"}


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "is empty"), (b"GGML....", "is not a GGUF file: it begins")]
)
def test_a_file_that_is_no_model_is_refused_before_hashing(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(CliError, match=message):
        find("m.gguf", tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pytorch_model.bin", b"PK\x03\x04"),
        ("model.pt", b"anything"),
        ("weights.gguf", b"\x80\x02}q"),
        ("model.safetensors", b"PK\x03\x04data"),
    ],
)
def test_a_pickle_is_refused_by_name_and_by_its_first_bytes(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    for text in (f"./{name}", "."):
        with pytest.raises(CliError, match=r"is a pickle.*as safetensors or GGUF"):
            find(text, tmp_path)


def test_all_parts_of_a_split_model_are_found(tmp_path: Path) -> None:
    names = [f"m-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    write(tmp_path, *names)
    for text in ("m-00001-of-00003.gguf", "m-00003-of-00003.gguf", "."):
        assert list(find(text, tmp_path) or {}) == names
    (tmp_path / names[1]).unlink()
    with pytest.raises(CliError, match=r"m-00002-of-00003.gguf is missing"):
        find("m-00001-of-00003.gguf", tmp_path)


def test_a_folder_of_safetensors_gives_the_files_that_make_a_model(tmp_path: Path) -> None:
    wanted = {"model.safetensors", "config.json", "tokenizer.model", "chat_template.jinja"}
    wanted |= {"vocab.txt", "vocab.json", "merges.txt", "1_Pooling/config.json"}
    wanted |= {"additional_chat_templates/tool_use.jinja"}
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "additional_chat_templates").mkdir()
    write(tmp_path, *wanted, "consolidated.safetensors", "notes.txt", "x.gguf")
    assert set(find(".", tmp_path) or {}) == wanted


def test_a_folder_of_peft_is_an_adapter(tmp_path: Path) -> None:
    names = {"adapter_model.safetensors", "adapter_config.json"}
    write(tmp_path / "lora", *names)
    assert set(find("lora", tmp_path, "ADAPTER") or {}) == names


@pytest.mark.parametrize("index", [False, True])
def test_a_missing_shard_is_named(tmp_path: Path, index: bool) -> None:
    names = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    write(tmp_path, names[0])
    if index:
        text = json.dumps({"weight_map": {"a": names[0], "b": names[1]}})
        (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CliError, match=r"model-00002-of-00002.safetensors is missing"):
        find(".", tmp_path)


@pytest.mark.parametrize("text", ["[]", "{", '{"weight_map": 3}'])
def test_an_index_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    write(tmp_path, "model.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CliError, match="is not a safetensors index"):
        find(".", tmp_path)


def test_one_of_several_models_has_to_be_named(tmp_path: Path) -> None:
    write(tmp_path, "a.gguf", "b.gguf")
    with pytest.raises(CliError, match=r"several models \(a.gguf, b.gguf\)"):
        find(".", tmp_path)


def test_one_file_of_a_folder_of_safetensors_is_no_model(tmp_path: Path) -> None:
    write(tmp_path, "model.safetensors")
    with pytest.raises(CliError, match="path of its folder"):
        find("./model.safetensors", tmp_path)


def test_a_header_whose_length_looks_like_a_pickle_is_safetensors(tmp_path: Path) -> None:
    for length in (0x0280, 0x04034B50):  # what pickles and zip files begin with
        content = struct.pack("<Q", length) + b"{" + b" " * 20
        (tmp_path / "model.safetensors").write_bytes(content)
        assert find(".", tmp_path) == {"model.safetensors": tmp_path / "model.safetensors"}


@pytest.mark.parametrize("name", ["mmproj-F16.gguf", "model-mmproj-f16.gguf"])
def test_a_projector_beside_the_model_comes_along_which_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    write(tmp_path, "model.gguf", name)
    assert list(find(".", tmp_path) or {}) == ["model.gguf", name]
    assert f"with {name}, the multimodal projector" in capsys.readouterr().err


def test_one_of_several_projectors_has_to_be_named(tmp_path: Path) -> None:
    write(tmp_path, "model.gguf", "mmproj-a.gguf", "mmproj-b.gguf")
    with pytest.raises(CliError, match=r"several multimodal projectors \(mmproj-a.gguf, mmproj-b"):
        find(".", tmp_path)


def test_a_projector_alone_is_left_to_the_daemon_to_refuse(tmp_path: Path) -> None:
    write(tmp_path, "mmproj-a.gguf")
    assert list(find(".", tmp_path) or {}) == ["mmproj-a.gguf"]
