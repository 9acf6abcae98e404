"""How much one owner may keep, and what keeping one more takes."""

from __future__ import annotations

import _sqlite3
import ctypes
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from runner.server.openai.responses import response_store
from runner.server.openai.responses.response_store import FILE_NAME, ResponseStore, StoredResponse

MAX_BYTES = 100_000
SAID = "x" * 10_000


def stored(ident: str, owner: str, *pictures: str) -> StoredResponse:
    content: list[dict[str, Any]] = [{"type": "input_text", "text": SAID}]
    content += [{"type": "input_image", "image_url": url} for url in pictures]
    history = [{"type": "message", "content": content}]
    return StoredResponse({"id": ident, "output": []}, history, 0, owner)  # type: ignore[typeddict-item]


def left(file: ResponseStore, owner: str, count: int) -> list[int]:
    return [number for number in range(count) if file.find(f"{owner}{number}")]


def test_the_oldest_responses_of_an_owner_make_room_for_its_new_ones(tmp_path: Path) -> None:
    file = ResponseStore(tmp_path / FILE_NAME, MAX_BYTES)
    file.save(stored("b0", "b"), b"events")
    for number in range(30):
        file.save(stored(f"a{number}", "a"), SAID.encode())
    assert left(file, "a", 30) == list(range(21, 30))
    assert left(file, "b", 1) == [0]
    assert file.events("a0") is None
    assert file.events("a29") == SAID.encode()
    assert file.events("b0") == b"events"


def test_pictures_count_once_for_all_responses_that_have_them(tmp_path: Path) -> None:
    file = ResponseStore(tmp_path / FILE_NAME, MAX_BYTES)
    shared, own = "data:,s" * 4000, "data:,o" * 4000
    for number in range(4):
        file.save(stored(f"a{number}", "a", shared))
    assert left(file, "a", 4) == [0, 1, 2, 3]
    for number in range(4, 7):
        file.save(stored(f"a{number}", "a", f"{own}{number}"))
    assert left(file, "a", 7) == [5, 6]
    with sqlite3.connect(tmp_path / FILE_NAME) as database:
        assert database.execute("SELECT count(*) FROM pictures").fetchone() == (2,)
    database.close()


def test_an_owner_keeps_so_many_responses_and_the_newest_whatever_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_store, "MAX_RESPONSES", 3)
    file = ResponseStore(tmp_path / FILE_NAME, MAX_BYTES)
    for number in range(5):
        file.save(stored(f"a{number}", "a"))
        file.save(stored(f"a{number}", "a"))
    assert left(file, "a", 5) == [2, 3, 4]
    file.save(stored("a5", "a", "data:," + 3 * MAX_BYTES * "x"))
    assert left(file, "a", 6) == [5]


def test_to_save_one_more_takes_as_much_memory_however_many_there_are(tmp_path: Path) -> None:
    try:
        peak = ctypes.CDLL(_sqlite3.__file__).sqlite3_memory_highwater
    except (AttributeError, OSError):
        pytest.skip("SQLite is linked into Python: it cannot be asked")
    peak.restype = ctypes.c_int64
    file = ResponseStore(tmp_path / FILE_NAME)
    file.save(stored("first", ""))

    def peak_bytes(ident: str) -> int:
        peak(1)  # begin anew
        file.save(stored(ident, ""))
        return int(peak(0))

    peak_bytes("warm")
    few_bytes = peak_bytes("few")
    row = (time.time(), SAID)
    with file._database.opened() as database:
        database.executemany(
            "INSERT INTO responses (id, stored_at, response, history, input_from, owner, "
            "size_bytes) VALUES (?, ?, '{}', ?, 0, '', 1000)",
            [(f"resp_{number:032x}", *row) for number in range(10_000)],
        )
    assert peak_bytes("many") < few_bytes + 256 * 1024
