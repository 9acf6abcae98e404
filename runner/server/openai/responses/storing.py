"""The responses that are kept: a SQLite file, so that a later request can go on from one.

Owns the file. Knows nothing of requests. Methods block on the disk; each opens the file anew, so
that any thread may call them.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.server.openai.database import Database

KEEP_S = 30 * 86400.0
FILE_NAME = "responses.sqlite3"
_TABLE = """
CREATE TABLE IF NOT EXISTS responses (
    id TEXT PRIMARY KEY, stored_at REAL NOT NULL, response TEXT NOT NULL, history TEXT NOT NULL,
    input_from INTEGER NOT NULL
)
"""


@dataclass(frozen=True, slots=True)
class Stored:
    """A response with all items that came before its output. input_from: where among them its
    own input begins."""

    response: dict[str, Any]
    history: list[dict[str, Any]]
    input_from: int


class ResponseFile:
    """The file; made with the first response."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, (_TABLE,), "the file of stored responses")

    def save(self, stored: Stored) -> None:
        """Keep a response, in place of an earlier state of it; those older than KEEP_S go.
        Raises StorageFailed."""
        now = time.time()
        row = (
            stored.response["id"],
            now,
            json.dumps(stored.response),
            json.dumps(stored.history),
            stored.input_from,
        )
        with self._database.opened() as database:
            database.execute("INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?, ?)", row)
            database.execute("DELETE FROM responses WHERE stored_at < ?", (now - KEEP_S,))

    def find(self, ident: str) -> Stored | None:
        """The response with this id. Raises StorageFailed."""
        if not self._database.exists:
            return None
        query = "SELECT response, history, input_from FROM responses WHERE id = ?"
        with self._database.opened() as database:
            row = database.execute(query, (ident,)).fetchone()
        return None if row is None else Stored(json.loads(row[0]), json.loads(row[1]), row[2])

    def delete(self, ident: str) -> bool:
        """Forget a response; False when there is none. Raises StorageFailed."""
        if not self._database.exists:
            return False
        with self._database.opened() as database:
            return database.execute("DELETE FROM responses WHERE id = ?", (ident,)).rowcount > 0
