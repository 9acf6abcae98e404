"""The conversations that are kept, in the file of stored responses.

Owns two tables of it. Knows nothing of requests. Methods block on the disk; any thread may call
them. owner: whose conversations a method knows; None: everybody's.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from runner.errors import Conflict
from runner.server.errors import HttpError
from runner.server.ids import new_id
from runner.server.openai.database import Database
from runner.server.openai.paging import PageQuery
from runner.server.openai.responses import image_store
from runner.server.request_body import MAX_IMAGES_BODY_BYTES

TABLES: Final = (
    """
CREATE TABLE IF NOT EXISTS conversations (
    id TEXT PRIMARY KEY, created_at INTEGER NOT NULL, owner TEXT NOT NULL, metadata TEXT NOT NULL,
    size_bytes INTEGER NOT NULL
)
""",
    """
CREATE TABLE IF NOT EXISTS conversation_items (
    number INTEGER PRIMARY KEY AUTOINCREMENT, conversation TEXT NOT NULL, id TEXT NOT NULL,
    item TEXT NOT NULL, size_bytes INTEGER NOT NULL, UNIQUE (conversation, id)
)
""",
)
MAX_CONVERSATIONS: Final = 10_000  # of one owner
MAX_ITEMS: Final = 4096  # of one conversation
MAX_CONVERSATION_BYTES: Final = MAX_IMAGES_BODY_BYTES  # more than a request could have

Items = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """A conversation. created_at: seconds since 1970. size_bytes: of all items, with pictures."""

    id: str
    created_at: int
    owner: str
    metadata: dict[str, str]
    size_bytes: int = 0


class ConversationStore:
    """The conversations of one daemon."""

    def __init__(self, database: Database, max_bytes: int) -> None:
        """max_bytes: of all of one owner's items together."""
        self._database = database
        self._max_bytes = max_bytes

    def create(self, owner: str, metadata: dict[str, str], items: Items) -> StoredConversation:
        """A new one. Raises HttpError 413, StorageFailed."""
        ident = new_id("conv").replace("-", "_")
        made = StoredConversation(ident, int(time.time()), owner, metadata)
        with self._database.opened() as database:
            count = "SELECT COUNT(*) FROM conversations WHERE owner = ?"
            if database.execute(count, (owner,)).fetchone()[0] >= MAX_CONVERSATIONS:
                raise _full(f"{MAX_CONVERSATIONS} conversations are kept at most; delete some")
            row = (made.id, made.created_at, owner, json.dumps(metadata))
            database.execute("INSERT INTO conversations VALUES (?, ?, ?, ?, 0)", row)
            self._add(database, made, items)
        return made

    def find(self, ident: str, owner: str | None) -> StoredConversation | None:
        """The one with this id. Raises StorageFailed."""
        with self._database.opened() as database:
            return _find(database, ident, owner)

    def update(
        self, ident: str, owner: str | None, metadata: dict[str, str]
    ) -> StoredConversation | None:
        """Set the metadata; None: there is no such conversation. Raises StorageFailed."""
        with self._database.opened() as database:
            found = _find(database, ident, owner)
            if found is not None:
                change = "UPDATE conversations SET metadata = ? WHERE id = ?"
                database.execute(change, (json.dumps(metadata), ident))
                found = replace(found, metadata=metadata)
        return found

    def delete(self, ident: str, owner: str | None) -> bool:
        """Forget one with its items; False when there is none. Raises StorageFailed."""
        with self._database.opened() as database:
            if _find(database, ident, owner) is None:
                return False
            database.execute("DELETE FROM conversation_items WHERE conversation = ?", (ident,))
            database.execute("DELETE FROM conversations WHERE id = ?", (ident,))
            image_store.prune(database)
        return True

    def add(self, ident: str, owner: str | None, items: Items) -> Items | None:
        """Put items at the end, and give them as they are kept; None: there is no such
        conversation. Raises Conflict, HttpError 413, StorageFailed."""
        with self._database.opened() as database:
            found = _find(database, ident, owner)
            return None if found is None else self._add(database, found, items)

    def all_items(self, ident: str, owner: str | None) -> Items | None:
        """All items, the oldest first; None: there is no such conversation. Raises
        StorageFailed."""
        with self._database.opened() as database:
            if _find(database, ident, owner) is None:
                return None
            query = "SELECT item FROM conversation_items WHERE conversation = ? ORDER BY number"
            return _filled(database, database.execute(query, (ident,)).fetchall())

    def page(self, ident: str, query: PageQuery) -> tuple[Items, bool]:
        """A page of the items of an existing conversation, and whether there are more. Raises
        StorageFailed."""
        with self._database.opened() as database:
            rows, more = query.rows(
                database, "conversation_items", "item", "conversation = ?", (ident,)
            )
            return _filled(database, rows), more

    def page_bytes(self, ident: str, query: PageQuery) -> int:
        """How large the items of a page are together. Raises StorageFailed."""
        with self._database.opened() as database:
            rows, _ = query.rows(
                database, "conversation_items", "size_bytes", "conversation = ?", (ident,)
            )
        return sum(size for (size,) in rows)

    def item(self, ident: str, item: str) -> dict[str, Any] | None:
        """One item of an existing conversation. Raises StorageFailed."""
        query = "SELECT item FROM conversation_items WHERE conversation = ? AND id = ?"
        with self._database.opened() as database:
            found = _filled(database, database.execute(query, (ident, item)).fetchall())
        return found[0] if found else None

    def delete_item(self, ident: str, item: str) -> bool:
        """Delete one item of an existing conversation; False when there is none. Raises
        StorageFailed."""
        gone = (
            "DELETE FROM conversation_items WHERE conversation = ? AND id = ? RETURNING size_bytes"
        )
        with self._database.opened() as database:
            row = database.execute(gone, (ident, item)).fetchone()
            if row is not None:
                _grow(database, ident, -row[0])
        return row is not None

    def _add(
        self, database: sqlite3.Connection, conversation: StoredConversation, items: Items
    ) -> Items:
        ident = conversation.id
        ids = "SELECT id FROM conversation_items WHERE conversation = ?"
        known = {row[0] for row in database.execute(ids, (ident,))}
        if len(known) + len(items) > MAX_ITEMS:
            raise Conflict(
                f"the conversation {ident} would have more than {MAX_ITEMS} items; begin a new one",
                param="conversation",
            )
        kept = _with_ids(items, known)
        sizes = [len(json.dumps(item)) for item in kept]
        if conversation.size_bytes + sum(sizes) > MAX_CONVERSATION_BYTES:
            raise Conflict(
                f"the conversation {ident} would have more than {MAX_CONVERSATION_BYTES >> 20} MiB;"
                " begin a new one",
                param="conversation",
            )
        _grow(database, ident, sum(sizes))
        used = "SELECT SUM(size_bytes) FROM conversations WHERE owner = ?"
        if database.execute(used, (conversation.owner,)).fetchone()[0] > self._max_bytes:
            raise _full(f"conversations hold {self._max_bytes} bytes at most; delete some")
        for item, stored, size in zip(
            kept, image_store.put(database, ident, kept), sizes, strict=True
        ):
            row = (ident, item["id"], json.dumps(stored), size)
            database.execute(
                "INSERT INTO conversation_items (conversation, id, item, size_bytes) "
                "VALUES (?, ?, ?, ?)",
                row,
            )
        return kept


def unknown_conversation(ident: str) -> HttpError:
    """There is none with this id."""
    return HttpError(404, "conversation_not_found", f"no such conversation: {ident[:80]!r}")


def _find(database: sqlite3.Connection, ident: str, owner: str | None) -> StoredConversation | None:
    query = (
        "SELECT id, created_at, owner, metadata, size_bytes FROM conversations "
        "WHERE id = ?1 AND (?2 IS NULL OR owner = ?2)"
    )
    row = database.execute(query, (ident, owner)).fetchone()
    if row is None:
        return None
    return StoredConversation(row[0], row[1], row[2], json.loads(row[3]), row[4])


def _grow(database: sqlite3.Connection, ident: str, size_bytes: int) -> None:
    change = "UPDATE conversations SET size_bytes = size_bytes + ? WHERE id = ?"
    database.execute(change, (size_bytes, ident))


def _filled(database: sqlite3.Connection, rows: Sequence[Sequence[Any]]) -> Items:
    return image_store.fill(database, [json.loads(row[0]) for row in rows])


def _with_ids(items: Items, known: set[str]) -> Items:
    """items, each with a status and an id that no other one of the conversation has."""
    kept = []
    for item in items:
        ident = item["id"]
        if ident in known:
            ident = new_id("item").replace("-", "_")
        known.add(ident)
        kept.append({"status": "completed", **item, "id": ident})
    return kept


def _full(message: str) -> HttpError:
    return HttpError(413, "conversations_full", message)
