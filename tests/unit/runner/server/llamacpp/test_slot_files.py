from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from pathlib import Path

import pytest

from runner.errors import Conflict, InvalidRequest
from runner.library.sealed_file import read_secret
from runner.server.errors import HttpError
from runner.server.llamacpp.slot_files import SlotFolder

STATE = bytes(range(256)) * 5000  # more than a piece
SECRET = b"s" * 32


@pytest.fixture
def folder(tmp_path: Path) -> SlotFolder:
    return SlotFolder(tmp_path / "slots", "", SECRET, 4 << 20)


def save(folder: SlotFolder, name: str = "a", state: bytes = STATE) -> Path:
    writer = folder.create(name, {"tokens": [1, 2]}, len(state))
    writer.write(state)
    writer.publish()
    return folder.path / name


def test_a_file_gives_back_what_was_saved(folder: SlotFolder) -> None:
    path = save(folder)
    reader = folder.open("a")
    assert reader.header == {"tokens": [1, 2]}
    assert (reader.content_bytes, reader.size_bytes) == (len(STATE), path.stat().st_size)
    read, left = b"", reader.content_bytes
    while left:
        read += (piece := reader.read(left))
        left -= len(piece)
    assert read == STATE
    reader.close()


@pytest.mark.parametrize("damage", ["bit", "cut", "longer", "empty", "secret", "swapped"])
def test_what_this_daemon_did_not_seal_is_refused(folder: SlotFolder, damage: str) -> None:
    path = save(folder)
    data = path.read_bytes()
    half = len(data) // 2
    path.write_bytes(
        {
            "bit": data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :],
            "cut": data[:-1],
            "longer": data + b"x",
            "empty": b"",
            "secret": data[:-32] + hmac.digest(b"x" * 32, data[:-32], hashlib.sha256),
            "swapped": data[32:] + data[:32],
        }[damage]
    )
    with pytest.raises(InvalidRequest, match="'a' is damaged, or was not saved by this daemon"):
        folder.open("a")


def test_a_file_of_another_format_is_told_apart(folder: SlotFolder) -> None:
    path = save(folder)
    data = b"hearth slot 0\n" + path.read_bytes()[14:-32]
    path.write_bytes(data + hmac.digest(SECRET, data, hashlib.sha256))
    with pytest.raises(InvalidRequest, match="another version"):
        folder.open("a")


def test_files_of_an_owner_and_of_all_are_bounded(folder: SlotFolder) -> None:
    a, b, c = (replace(folder, owner=f"key {name}") for name in "abc")
    save(a)
    save(a)  # in its own place
    with pytest.raises(HttpError, match="may take 2097152 bytes"):
        save(a, "b")
    save(b)
    save(c)
    with pytest.raises(HttpError, match="may take 4194304 bytes"):
        save(replace(folder, owner="key d"))
    assert not [path for path in folder.root.rglob("*") if path.name.startswith(".")]


def test_what_an_ended_daemon_left_unfinished_goes(folder: SlotFolder) -> None:
    writer = folder.create("a", {}, 10)
    (left,) = folder.path.iterdir()
    assert left.stat().st_mode & 0o777 == 0o600
    save(folder, "b")
    assert [path.name for path in folder.path.iterdir()] == ["b"]
    writer.discard()


def test_the_secret_is_made_once_and_is_nobody_elses(tmp_path: Path) -> None:
    path = tmp_path / "state" / "slots.key"
    secret = read_secret(path)
    assert len(secret) == 32
    assert read_secret(path) == secret
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o666)
    with pytest.raises(Conflict, match="other users"):
        read_secret(path)
