"""Model files on their way into the store."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import pytest

from cli.errors import Failure
from cli.upload import CHUNK_BYTES, digest, locate, send
from runner.client import Client
from tests.unit.cli.conftest import FakeDaemon


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file that begins like a model."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + b"x" * CHUNK_BYTES)
    return path


@pytest.mark.parametrize("name", ["model.gguf", "./model.gguf", "../{folder}/model.gguf"])
def test_a_path_is_seen_from_the_folder_of_the_modelfile(
    model: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    text = name.format(folder=model.parent.name)
    assert locate(text, model.parent).samefile(model)


def test_an_absolute_path_is_taken_as_it_is(model: Path) -> None:
    assert locate(str(model), Path("/nowhere")) == model


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"there is no file .*/m\.gguf"):
        locate("./m.gguf", tmp_path)


def test_folders_pipes_devices_and_sockets_are_refused_without_opening(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dir").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "sock"))
        for name, what in (("fifo", "pipe"), ("dir", "folder"), ("sock", "socket")):
            with pytest.raises(Failure, match=what):
                locate(name, tmp_path)
    with pytest.raises(Failure, match="device"):
        locate("/dev/zero", tmp_path)


def test_a_link_out_of_the_folder_is_refused_and_the_target_named(
    model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "weights.gguf").symlink_to(model)
    with pytest.raises(Failure, match=rf"link to {model}.*write its own path"):
        locate("./weights.gguf", folder)
    assert locate("../model.gguf", folder).samefile(model)


def test_a_link_inside_the_folder_is_followed(model: Path, tmp_path: Path) -> None:
    (tmp_path / "link.gguf").symlink_to("model.gguf")
    assert locate("link.gguf", tmp_path).samefile(model)


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "is empty"), (b"PK\x03\x04", "is not a GGUF file: it begins")]
)
def test_a_file_that_is_no_model_is_refused_before_hashing(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(Failure, match=message):
        locate("m.gguf", tmp_path)


def test_the_digest_is_that_of_the_content_and_progress_adds_up(model: Path) -> None:
    counts: list[int] = []
    name = digest(model, counts.append)
    assert name == f"sha256:{hashlib.sha256(model.read_bytes()).hexdigest()}"
    assert sum(counts) == model.stat().st_size


def test_a_file_is_sent_whole(daemon: FakeDaemon, model: Path) -> None:
    from cli.connection import connect

    daemon.reply("POST", "/api/blobs/sha256:1", None, 201)
    counts: list[int] = []
    with connect() as client:
        send(client, model, "sha256:1", counts.append)
    assert daemon.asked("/api/blobs/sha256:1") == [model.read_bytes()]
    assert sum(counts) == model.stat().st_size


@pytest.mark.parametrize(("change", "message"), [(5, "grew"), (-5, "shrank")])
def test_a_file_that_changes_while_it_is_sent_is_refused(
    model: Path, change: int, message: str
) -> None:
    class Changing(Client):
        def upload_blob(self, digest: str, content: object, size_bytes: int) -> None:
            os.truncate(model, size_bytes + change)
            list(content)  # type: ignore[call-overload]

    with Changing("http://127.0.0.1:1") as client, pytest.raises(Failure, match=message):
        send(client, model, "sha256:1", lambda count: None)
