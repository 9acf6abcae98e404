"""Files that are put into the store's folder: by which way, and what is left."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.errors import CliError
from cli.staged_file import staged, store_folder
from registry import copies
from runner.settings import load

CONTENT = b"GGUF" + b"weights" * 100_000


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store on a file system that knows no clones."""
    monkeypatch.setattr(copies, "clone", no_clones)
    folder = tmp_path / "home" / "models"
    (folder / "tmp").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("HEARTH_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HEARTH_MODELS", raising=False)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(CONTENT)
    path.chmod(0o644)
    return path


def no_clones(source: int, target: int) -> None:
    """As a file system without reflinks answers."""
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def ignore(count: int) -> None:
    """Nobody watches."""


def left(store: Path) -> list[str]:
    return [path.name for path in (store / "tmp").iterdir()]


def test_a_file_of_this_user_is_linked_and_the_name_is_gone_afterwards(
    store: Path, model: Path
) -> None:
    with staged(model, store, False, ignore) as name:
        assert name.startswith("incoming-")
        assert (store / "tmp" / name).samefile(model)
    assert left(store) == []
    assert model.read_bytes() == CONTENT


def test_a_link_is_followed_to_the_file(store: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(model)
    with staged(tmp_path / "link", store, False, ignore) as name:
        assert not (store / "tmp" / name).is_symlink()
        assert (store / "tmp" / name).samefile(model)


@pytest.mark.parametrize("reason", ["group", "others", "wanted", "another file system"])
def test_a_file_that_should_not_be_linked_is_copied_for_this_user_alone(
    store: Path, model: Path, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EXDEV, "other device")

    model.chmod({"group": 0o664, "others": 0o646}.get(reason, 0o644))
    if reason == "another file system":
        monkeypatch.setattr(os, "link", refuse)
    counts: list[int] = []
    with staged(model, store, reason == "wanted", counts.append) as name:
        copy = store / "tmp" / name
        assert not copy.samefile(model)
        assert copy.read_bytes() == CONTENT
        assert copy.stat().st_mode & 0o777 == 0o600
    assert sum(counts) == len(CONTENT)
    assert left(store) == []


def test_a_file_is_copied_where_the_kernel_cannot(
    store: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.EXDEV, "other device")

    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    with staged(model, store, True, ignore) as name:
        assert (store / "tmp" / name).read_bytes() == CONTENT


def test_a_file_of_another_user_is_copied(
    store: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: model.stat().st_uid + 1)
    with staged(model, store, False, ignore) as name:
        assert not (store / "tmp" / name).samefile(model)


@pytest.mark.parametrize("free", [0, 999])
def test_a_copy_that_does_not_fit_is_refused_with_the_numbers(
    store: Path, model: Path, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    with (
        pytest.raises(CliError, match=rf"needs 700 KB, but only (0|999) B is free in {store}\. "),
        staged(model, store, True, ignore),
    ):
        pytest.fail("it was placed")
    assert left(store) == []


def test_a_folder_that_cannot_be_written_to_is_named(
    store: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def refuse(path: Path, *given: int) -> int:
        if "incoming-" in str(path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, *given)

    monkeypatch.setattr(os, "open", refuse)
    said = f"^cannot write to {store}, where the models are: Read-only file system$"
    with pytest.raises(CliError, match=said), staged(model, store, True, ignore):
        pytest.fail("it was placed")


def test_a_disk_that_fills_up_leaves_nothing(
    store: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "copy_file_range", full, raising=False)
    with pytest.raises(CliError, match="does not fit"), staged(model, store, True, ignore):
        pytest.fail("it was placed")
    assert left(store) == []


def test_a_file_that_becomes_shorter_is_told(
    store: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "copy_file_range", lambda *_: 0, raising=False)
    with pytest.raises(CliError, match="shrank"), staged(model, store, True, ignore):
        pytest.fail("it was placed")
    assert left(store) == []


def test_an_interrupted_copy_leaves_nothing(store: Path, model: Path) -> None:
    def interrupt(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), staged(model, store, True, interrupt):
        pytest.fail("it was placed")
    assert left(store) == []


def test_the_store_is_that_of_the_daemon_that_answers(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "tmp").mkdir(parents=True, mode=0o700)
    settings = load()
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    facts = {"url": "http://127.0.0.1:1", "models": str(other)}
    (settings.state_dir / "daemon.json").write_text(json.dumps(facts))
    assert store_folder(settings, "http://127.0.0.1:1") == other
    assert store_folder(settings, "http://127.0.0.1:2") == store


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_can_write_is_not_used(store: Path, mode: int) -> None:
    (store / "tmp").chmod(mode)
    assert store_folder(load(), "http://127.0.0.1:1") is None


def test_a_store_that_is_not_there_is_not_used(store: Path) -> None:
    (store / "tmp").rmdir()
    assert store_folder(load(), "http://127.0.0.1:1") is None
