"""The pictures of stored responses."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from runner.server.openai.responses.response_store import FILE_NAME, ResponseStore, StoredResponse

URL = "data:image/png;base64," + "A" * 100_000


@pytest.fixture
def file(tmp_path: Path) -> ResponseStore:
    return ResponseStore(tmp_path / FILE_NAME)


def shown(url: str = URL, name: str = "content") -> dict[str, Any]:
    part = {"type": "input_image", "image_url": url, "detail": "low"}
    return {"type": "message", "id": "m", name: [{"type": "input_text", "text": "a"}, part]}


def stored(ident: str, *history: dict[str, Any]) -> StoredResponse:
    return StoredResponse({"id": ident, "output": []}, list(history), 0)


def pictures(folder: Path) -> int:
    with sqlite3.connect(folder / FILE_NAME) as database:
        found = database.execute("SELECT count(*) FROM pictures").fetchone()
    database.close()
    return int(found[0])


@pytest.mark.parametrize("name", ["content", "output"])
def test_a_response_comes_back_with_its_pictures(file: ResponseStore, name: str) -> None:
    history = [shown(name=name), {"type": "message", "content": [{"type": "input_image"}]}]
    given = stored("a", *history)
    file.save(given)
    assert given.history == [shown(name=name), history[1]]
    assert file.find("a") == given


def test_a_conversation_keeps_a_picture_once(file: ResponseStore, tmp_path: Path) -> None:
    for number in range(20):
        file.save(stored(str(number), *[shown()] * (number + 1)))
    assert pictures(tmp_path) == 1
    assert (tmp_path / FILE_NAME).stat().st_size < 3 * len(URL)
    found = file.find("19")
    assert found is not None
    assert found.history == [shown()] * 20


def test_a_picture_goes_with_the_last_response_that_has_it(
    file: ResponseStore, tmp_path: Path
) -> None:
    file.save(stored("a", shown()))
    file.save(stored("b", shown(), shown("data:,other")))
    assert pictures(tmp_path) == 2
    assert file.delete("b")
    assert pictures(tmp_path) == 1
    assert file.find("a") == stored("a", shown())
    assert file.delete("a")
    assert pictures(tmp_path) == 0


def test_only_images_are_kept_apart(file: ResponseStore) -> None:
    odd = {"type": "message", "content": [{"type": "input_text", "image_url": "picture:x"}]}
    plain = {"type": "message", "content": "text", "output": None}
    file.save(stored("a", odd, plain))
    assert file.find("a") == stored("a", odd, plain)
