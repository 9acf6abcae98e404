"""The pictures of stored responses: each is stored once, however many responses of a conversation
have it, and as long as one of them exists.

Owns two tables of the file of stored responses.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from typing import Any

TABLES = (
    "CREATE TABLE IF NOT EXISTS pictures (digest TEXT PRIMARY KEY, url TEXT NOT NULL)",
    """
CREATE TABLE IF NOT EXISTS picture_holds (
    response TEXT NOT NULL, picture TEXT NOT NULL, size_bytes INTEGER NOT NULL,
    PRIMARY KEY (response, picture)
) WITHOUT ROWID
""",
)
TYPE = "input_image"
_REFERENCE = "picture:"

Items = list[dict[str, Any]]


def put(database: sqlite3.Connection, ident: str, items: Items) -> Items:
    """The items of the response ident to store, their pictures kept apart."""
    kept = [_copied(item) for item in items]
    for part in _pictures(kept):
        url = part["image_url"]
        digest = hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()
        database.execute("INSERT OR IGNORE INTO pictures VALUES (?, ?)", (digest, url))
        held = (ident, digest, len(url))
        database.execute("INSERT OR IGNORE INTO picture_holds VALUES (?, ?, ?)", held)
        part["image_url"] = _REFERENCE + digest
    return kept


def fill(database: sqlite3.Connection, items: Items) -> Items:
    """Stored items with their pictures in them again; the same list."""
    query = "SELECT url FROM pictures WHERE digest = ?"
    for part in _pictures(items):
        digest = str(part["image_url"]).removeprefix(_REFERENCE)
        row = database.execute(query, (digest,)).fetchone()
        if row is not None:
            part["image_url"] = row[0]
    return items


def size_bytes(database: sqlite3.Connection, owner: str) -> int:
    """Of all pictures that the responses of an owner have."""
    query = (
        "SELECT COALESCE(SUM(size_bytes), 0) FROM (SELECT DISTINCT picture, size_bytes FROM "
        "picture_holds WHERE EXISTS "
        "(SELECT 1 FROM responses WHERE id = picture_holds.response AND owner = ?))"
    )
    return int(database.execute(query, (owner,)).fetchone()[0])


def prune(database: sqlite3.Connection) -> None:
    """Delete the pictures that no response or conversation refers to."""
    gone = (
        "DELETE FROM picture_holds WHERE "
        "NOT EXISTS (SELECT 1 FROM responses WHERE id = picture_holds.response) AND "
        "NOT EXISTS (SELECT 1 FROM conversations WHERE id = picture_holds.response)"
    )
    if database.execute(gone).rowcount:
        database.execute(
            "DELETE FROM pictures WHERE digest NOT IN (SELECT picture FROM picture_holds)"
        )


def _pictures(items: Items) -> Iterator[dict[str, Any]]:
    for item in items:
        for name in ("content", "output"):
            parts = item.get(name)
            for part in parts if isinstance(parts, list) else ():
                if part.get("type") == TYPE and part.get("image_url"):
                    yield part


def _copied(item: dict[str, Any]) -> dict[str, Any]:
    """A copy whose parts can be changed."""
    parts = {name: item[name] for name in ("content", "output") if isinstance(item.get(name), list)}
    return {**item, **{name: [dict(part) for part in given] for name, given in parts.items()}}
