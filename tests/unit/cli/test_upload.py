"""Model files on their way into the store."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from cli.errors import CliError
from cli.upload import CHUNK_BYTES, BlobUploader, digest, send
from runner.client import Client, ClientError
from runner.replies import TaskProgress
from tests.unit.cli.conftest import FakeDaemon


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file that begins like a model."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + b"x" * CHUNK_BYTES)
    return path


def test_the_digest_is_that_of_the_content_and_progress_adds_up(model: Path) -> None:
    counts: list[int] = []
    name = digest(model, counts.append)
    assert name == f"sha256:{hashlib.sha256(model.read_bytes()).hexdigest()}"
    assert sum(counts) == model.stat().st_size


def test_a_file_is_sent_whole(daemon: FakeDaemon, model: Path) -> None:
    from cli.connection import connect

    daemon.reply("POST", "/api/blobs/sha256:1", None, 201)
    counts: list[int] = []
    client = connect()
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

    with pytest.raises(CliError, match=message):
        send(Changing("http://127.0.0.1:1"), model, "sha256:1", lambda count: None)


class Storing:
    """A daemon that reads what was placed; other: it has another store."""

    def __init__(self, store: Path, other: bool = False) -> None:
        self.store = store
        self.other = other
        self.taken: list[str] = []
        self.sent: list[str] = []

    def take_blob(self, name: str) -> Generator[TaskProgress]:
        if self.other:
            raise ClientError("not in the store", status=400, code="invalid_value")
        content = (self.store / "tmp" / name).read_bytes()
        self.taken.append(name)
        yield {"status": "verifying", "completed": 1, "total": len(content)}
        yield {"status": "success", "digest": f"sha256:{hashlib.sha256(content).hexdigest()}"}

    def has_blob(self, digest: str) -> bool:
        return (self.store / "blobs" / digest.replace(":", "-")).exists()

    def upload_blob(self, digest: str, content: Iterator[bytes], size_bytes: int) -> None:
        assert len(b"".join(content)) == size_bytes
        self.sent.append(digest)


class Shown:
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.lines: list[TaskProgress] = []

    def show(self, line: TaskProgress) -> None:
        self.lines.append(line)

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    for name in ("tmp", "blobs"):
        (folder / name).mkdir(parents=True)
    return folder


def test_a_file_is_placed_and_read_once_by_the_daemon(store: Path, model: Path) -> None:
    daemon, view = Storing(store), Shown()
    named = BlobUploader(daemon, view, store).bring_all({"m.gguf": model})  # type: ignore[arg-type]
    assert named == {"m.gguf": f"sha256:{hashlib.sha256(model.read_bytes()).hexdigest()}"}
    assert (len(daemon.taken), daemon.sent) == (1, [])
    assert {line["status"] for line in view.lines} == {"verifying model.gguf"}
    assert not list((store / "tmp").iterdir())


@pytest.mark.parametrize("placeable", [True, False])
def test_a_file_is_sent_to_a_daemon_with_another_store(
    store: Path, model: Path, placeable: bool
) -> None:
    daemon, view = Storing(store, other=True), Shown()
    place = store if placeable else None
    named = BlobUploader(daemon, view, place).bring(model)  # type: ignore[arg-type]
    assert daemon.sent == [named]
    statuses = {line["status"] for line in view.lines}
    assert {"reading model.gguf", "sending model.gguf"} <= statuses
    assert not list((store / "tmp").iterdir())


def test_a_blob_of_the_store_is_named_without_being_read(store: Path, model: Path) -> None:
    blob = store / "blobs" / f"sha256-{'0' * 64}"
    blob.write_bytes(model.read_bytes())
    daemon, view = Storing(store), Shown()
    assert BlobUploader(daemon, view, store).bring(blob) == f"sha256:{'0' * 64}"  # type: ignore[arg-type]
    assert (daemon.taken, daemon.sent, view.lines) == ([], [], [])


def test_a_daemon_that_refuses_the_file_is_believed(store: Path, model: Path) -> None:
    class Refusing(Storing):
        def take_blob(self, name: str) -> Generator[TaskProgress]:
            raise ClientError("it changed", status=400, code="model_invalid")

    daemon = Refusing(store)
    with pytest.raises(ClientError, match="it changed"):
        BlobUploader(daemon, Shown(), store).bring(model)  # type: ignore[arg-type]
    assert daemon.sent == []
