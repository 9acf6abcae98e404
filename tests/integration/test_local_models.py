"""Model files of this machine as models of a real daemon: named after the file, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.errors import CliError
from cli.local_models import is_path, model_of_path
from runner.client import Client, ClientError
from tests.conftest import RunningDaemon, StartDaemon
from tests.gguf_files import all_llama_tensors, gguf_file, llama_file, llama_metadata, text


@pytest.fixture
def daemon(start_daemon: StartDaemon, monkeypatch: pytest.MonkeyPatch) -> RunningDaemon:
    """A daemon whose settings this process has too."""
    started = start_daemon(names=())
    monkeypatch.setenv("HEARTH_HOME", str(started.home))
    monkeypatch.setenv("HEARTH_HOST", started.url)
    return started


@pytest.fixture
def client(daemon: RunningDaemon) -> Client:
    return Client(daemon.url)


def other_file() -> bytes:
    return gguf_file({**llama_metadata(), "general.name": text("another")}, all_llama_tensors())


def blobs(daemon: RunningDaemon) -> set[int]:
    """The inodes of the weights in the store."""
    files = (daemon.home / "models" / "blobs").iterdir()
    return {file.stat().st_ino for file in files if file.read_bytes()[:4] == b"GGUF"}


def test_a_file_is_named_after_itself_and_made_once(
    daemon: RunningDaemon, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    bundled = blobs(daemon)
    (tmp_path / "My model.Q4_K_M.gguf").write_bytes(llama_file())
    monkeypatch.chdir(tmp_path)
    name = model_of_path(client, "./My model.Q4_K_M.gguf")
    assert name == "local/My-model.Q4_K_M"
    made, first = client.show(name), blobs(daemon)
    assert len(first - bundled) == 1
    capsys.readouterr()
    assert model_of_path(client, "My model.Q4_K_M.gguf") == name
    assert blobs(daemon) == first
    assert client.show(name)["modified_at"] == made["modified_at"]
    assert "verifying" not in capsys.readouterr().err  # a link that nobody wrote to since


def test_a_file_that_must_be_read_again_gives_no_second_copy(
    daemon: RunningDaemon, client: Client, tmp_path: Path
) -> None:
    first, second = tmp_path / "a" / "m.gguf", tmp_path / "b" / "m.gguf"
    for path in (first, second):
        path.parent.mkdir()
        path.write_bytes(llama_file())
    name = model_of_path(client, str(first))
    stored = blobs(daemon)
    assert model_of_path(client, str(second)) == name
    assert blobs(daemon) == stored


def test_another_file_of_the_same_name_replaces_nothing(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(llama_file())
    first = model_of_path(client, str(path))
    path.unlink()
    path.write_bytes(other_file())
    second = model_of_path(client, str(path))
    assert (first, second.startswith("local/m:")) == ("local/m", True)
    assert client.show(first)["weights"] != client.show(second)["weights"]
    assert model_of_path(client, str(path)) == second


def test_a_projector_that_is_none_leaves_no_model(client: Client, tmp_path: Path) -> None:
    folder = tmp_path / "llava"
    folder.mkdir()
    (folder / "model.gguf").write_bytes(llama_file())
    (folder / "mmproj.gguf").write_bytes(b"GGUF, but no projector")
    with pytest.raises(ClientError, match="GGUF"):
        model_of_path(client, str(folder))
    assert "local/llava" not in {model["name"] for model in client.tags()}


@pytest.mark.parametrize("given", ["./none.gguf", "/none/at/all"])
def test_a_path_to_nothing_is_said(client: Client, given: str) -> None:
    with pytest.raises(CliError, match=f"{given} does not exist"):
        model_of_path(client, given)


def test_names_are_told_from_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.gguf").touch()
    (tmp_path / "ember").mkdir()
    names = ["ember", "there.gguf", "hf.co/user/repo:x.gguf", "https://host/x.gguf", "user/m:q4"]
    assert not any(map(is_path, names))
    assert all(map(is_path, ["here.gguf", "./ember", "/x/y", "~/m.gguf", ".", "../z"]))
