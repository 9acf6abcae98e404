"""What is kept of conversations, and how much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner.errors import Conflict
from runner.server.errors import HttpError
from runner.server.openai.conversations import conversation_store
from runner.server.openai.conversations.conversation_store import ConversationStore
from runner.server.openai.paging import PageQuery
from runner.server.openai.responses.response_store import ResponseStore

URL = "data:image/png;base64," + "A" * 1000


def store(tmp_path: Path, max_bytes: int = 1 << 20) -> ConversationStore:
    return ResponseStore(tmp_path / "responses.sqlite3", max_bytes).conversations


def message(ident: str, text: str = "x") -> dict[str, Any]:
    return {"id": ident, "type": "message", "role": "user", "content": text}


def test_an_item_whose_id_is_taken_gets_another(tmp_path: Path) -> None:
    kept = store(tmp_path)
    made = kept.create("a", {}, [message("1"), message("1")])
    items = kept.all_items(made.id, "a") or []
    assert len({item["id"] for item in items}) == 2
    assert items[0]["id"] == "1"


def test_one_owner_keeps_so_much_and_gets_room_by_deleting(tmp_path: Path) -> None:
    kept = store(tmp_path, 2000)
    first = kept.create("a", {}, [message("1", "x" * 1500)])
    with pytest.raises(HttpError, match="2000 bytes"):
        kept.add(first.id, "a", [message("2", "x" * 500)])
    kept.create("b", {}, [message("1", "x" * 1500)])
    assert kept.delete_item(first.id, "1")
    assert kept.add(first.id, "a", [message("2", "x" * 500)])


def test_conversations_and_their_items_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_store, "MAX_ITEMS", 2)
    monkeypatch.setattr(conversation_store, "MAX_CONVERSATIONS", 1)
    kept = store(tmp_path)
    made = kept.create("a", {}, [message("1"), message("2")])
    with pytest.raises(Conflict, match="more than 2 items"):
        kept.add(made.id, "a", [message("3")])
    with pytest.raises(HttpError, match="1 conversations"):
        kept.create("a", {}, [])
    assert [item["id"] for item in kept.all_items(made.id, None) or []] == ["1", "2"]


def test_a_picture_stays_as_long_as_its_conversation(tmp_path: Path) -> None:
    kept = store(tmp_path)
    part = {"type": "input_image", "image_url": URL}
    made = kept.create("a", {}, [{**message("1"), "content": [part]}])
    other = kept.create("a", {}, [message("1")])
    assert kept.delete(other.id, "a")
    items = kept.all_items(made.id, "a") or []
    assert items[0]["content"][0]["image_url"] == URL


def test_a_conversation_has_no_more_than_a_request_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_store, "MAX_CONVERSATION_BYTES", 2000)
    kept = store(tmp_path)
    made = kept.create("a", {}, [message("1", "x" * 1500)])
    with pytest.raises(Conflict, match="begin a new one"):
        kept.add(made.id, "a", [message("2", "x" * 500)])
    assert len(kept.all_items(made.id, "a") or []) == 1
    kept.delete_item(made.id, "1")
    kept.add(made.id, "a", [message("2", "x" * 1500)])


def test_the_size_of_a_page_is_that_of_its_items(tmp_path: Path) -> None:
    kept = store(tmp_path)
    made = kept.create("a", {}, [message(str(number), "x" * 1000) for number in range(5)])
    one = kept.page_bytes(made.id, PageQuery(1))
    assert 1000 < one < 1200
    assert kept.page_bytes(made.id, PageQuery(3)) == 3 * one
    found = kept.find(made.id, "a")
    assert found is not None
    assert found.size_bytes == 5 * one
