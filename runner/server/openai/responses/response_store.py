"""The stored responses: a SQLite file, so that a later request can continue one.

Owns the file. Knows nothing of requests. Methods block on the disk; each opens the file itself, so
any thread may call them.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.server.openai.answers import ResponseObject
from runner.server.openai.conversations.conversation_store import TABLES as CONVERSATION_TABLES
from runner.server.openai.conversations.conversation_store import ConversationStore
from runner.server.openai.database import Database
from runner.server.openai.responses import image_store

log = logging.getLogger("hearth")

KEEP_S = 30 * 86400.0
MAX_RESPONSES = 20_000  # of one owner
FILE_NAME = "responses.sqlite3"
_TABLES = (
    """
CREATE TABLE IF NOT EXISTS responses (
    id TEXT PRIMARY KEY, stored_at REAL NOT NULL, response TEXT NOT NULL, history TEXT NOT NULL,
    input_from INTEGER NOT NULL, owner TEXT NOT NULL, size_bytes INTEGER NOT NULL
)
""",
    """
CREATE TABLE IF NOT EXISTS response_events (
    id TEXT PRIMARY KEY, stored_at REAL NOT NULL, events BLOB NOT NULL
)
""",
    "CREATE INDEX IF NOT EXISTS responses_of_owner ON responses (owner, stored_at, id, size_bytes)",
    "CREATE INDEX IF NOT EXISTS responses_by_age ON responses (stored_at)",
)


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response with all items that came before its output. input_from: where among them its
    own input begins. owner: the id of the caller whose it is."""

    response: ResponseObject
    history: list[dict[str, Any]]
    input_from: int
    owner: str = ""


class ResponseStore:
    """The file; made with the first response."""

    def __init__(self, path: Path, max_owner_bytes: int = 1 << 40) -> None:
        """max_owner_bytes: of all responses of one owner, and of all its conversations."""
        self._max_owner_bytes = max_owner_bytes
        tables = (*_TABLES, *image_store.TABLES, *CONVERSATION_TABLES)
        self._database = Database(path, tables, "the file of stored responses")
        self.conversations = ConversationStore(self._database, max_owner_bytes)

    def save(self, stored: StoredResponse, events: bytes | None = None) -> None:
        """Keep a response, in place of an earlier state of it, with its events if there are any;
        those older than KEEP_S go, and the oldest of an owner that has more than one may. Raises
        StorageFailed."""
        ident = stored.response["id"]
        with self._database.opened() as database:
            now = self._database.now(database)
            history = json.dumps(image_store.put(database, ident, stored.history))
            response = json.dumps(stored.response)
            packed = b"" if events is None else zlib.compress(events)  # which takes 256 KiB
            row = (ident, now, response, history, stored.input_from, stored.owner,
                   len(response) + len(history) + len(packed))  # fmt: skip
            database.execute(
                "INSERT OR REPLACE INTO responses (id, stored_at, response, history, input_from, "
                "owner, size_bytes) VALUES (?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            if events is not None:
                kept = (ident, now, packed)
                database.execute("INSERT OR REPLACE INTO response_events VALUES (?, ?, ?)", kept)
            old = database.execute("SELECT id FROM responses WHERE stored_at < ?", (now - KEEP_S,))
            _forget(database, [each for (each,) in old])
            self._make_room(database, stored.owner, ident)
        self.add_to_conversation(stored)

    def add_to_conversation(self, stored: StoredResponse) -> None:
        """Put a response that has ended well, and what it was asked, into its conversation, unless
        that has gone. Raises Conflict, HttpError 413, StorageFailed."""
        response = stored.response
        conversation = response.get("conversation")
        if conversation is not None and response["status"] in ("completed", "incomplete"):
            items = [*stored.history[stored.input_from :], *response["output"]]
            self.conversations.add(conversation["id"], None, items)

    def find(self, ident: str, owner: str | None = None) -> StoredResponse | None:
        """The response with this id; None also for one whose row is damaged. owner: of whom,
        None: of anybody. Raises StorageFailed."""
        if not self._database.exists:
            return None
        query = (
            "SELECT response, history, input_from, owner FROM responses "
            "WHERE id = ?1 AND (?2 IS NULL OR owner = ?2)"
        )
        with self._database.opened() as database:
            row = database.execute(query, (ident, owner)).fetchone()
            if row is None:
                return None
            try:
                history = image_store.fill(database, json.loads(row[1]))
                return StoredResponse(json.loads(row[0]), history, row[2], row[3])
            except (ValueError, TypeError, AttributeError) as error:
                log.error("the stored response %s is damaged: %s", ident, error)
                return None

    def size_bytes(self, ident: str, owner: str | None = None) -> int:
        """How large the response with this id is, with its pictures and events; 0: there is none.
        Raises StorageFailed."""
        if not self._database.exists:
            return 0
        query = (
            "SELECT size_bytes + COALESCE((SELECT SUM(size_bytes) FROM picture_holds "
            "WHERE response = ?1), 0) FROM responses WHERE id = ?1 AND (?2 IS NULL OR owner = ?2)"
        )
        with self._database.opened() as database:
            row = database.execute(query, (ident, owner)).fetchone()
        return 0 if row is None else int(row[0])

    def events(self, ident: str) -> bytes | None:
        """The events of the response with this id; None when none are kept. Raises
        StorageFailed."""
        if not self._database.exists:
            return None
        query = "SELECT events FROM response_events WHERE id = ?"
        with self._database.opened() as database:
            row = database.execute(query, (ident,)).fetchone()
        try:
            return None if row is None else zlib.decompress(row[0])
        except (zlib.error, TypeError) as error:
            log.error("the events of the response %s are damaged: %s", ident, error)
            return None

    def delete(self, ident: str) -> bool:
        """Forget a response; False when there is none. Raises StorageFailed."""
        if not self._database.exists:
            return False
        with self._database.opened() as database:
            return _forget(database, [ident])

    def _make_room(self, database: sqlite3.Connection, owner: str, newest: str) -> None:
        """The owner's oldest responses go, until it has no more than one owner may."""
        query = "SELECT COALESCE(SUM(size_bytes), 0), COUNT(*) FROM responses WHERE owner = ?"
        size_bytes, count = database.execute(query, (owner,)).fetchone()
        query = "SELECT id, size_bytes FROM responses WHERE owner = ? ORDER BY stored_at LIMIT 1"
        while (
            size_bytes + image_store.size_bytes(database, owner) > self._max_owner_bytes
            or count > MAX_RESPONSES
        ):
            oldest, oldest_bytes = database.execute(query, (owner,)).fetchone()
            if oldest == newest:
                return
            _forget(database, [oldest])
            size_bytes, count = size_bytes - oldest_bytes, count - 1


def _forget(database: sqlite3.Connection, idents: Sequence[str]) -> bool:
    """Whether there was one of these responses."""
    given = [(ident,) for ident in idents]
    database.executemany("DELETE FROM response_events WHERE id = ?", given)
    deleted = database.executemany("DELETE FROM responses WHERE id = ?", given).rowcount > 0
    if deleted:
        image_store.prune(database)
    return deleted
