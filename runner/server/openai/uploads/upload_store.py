"""Uploads that are not complete, in the file of stored files.

Owns one table of it. A part is a stored file of the purpose PART, which no list shows, and which
goes when the upload's time is over. Knows nothing of requests. Methods block on the disk; any
thread may call them.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from runner.errors import Conflict, InvalidRequest
from runner.server.errors import HttpError
from runner.server.ids import new_id
from runner.server.openai.database import Database
from runner.server.openai.files.file_store import (
    PART,
    FileStore,
    FileWriter,
    StoredFile,
    new_file_id,
)

TABLES: Final = (
    """
CREATE TABLE IF NOT EXISTS uploads (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, filename TEXT NOT NULL, purpose TEXT NOT NULL,
    size_bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, status TEXT NOT NULL, file TEXT,
    stay_s INTEGER, kept_at REAL NOT NULL
)
""",
)
STAY_S: Final = 3600  # for an upload to be completed
MAX_PENDING: Final = 256  # of one owner
_COLUMNS: Final = (
    "id, owner, filename, purpose, size_bytes, created_at, status, file, stay_s, kept_at"
)
_PIECE_BYTES: Final = 1 << 20

UploadStatus = Literal["pending", "completed", "cancelled", "expired"]


@dataclass(frozen=True, slots=True)
class StoredUpload:
    """What is known of an upload. size_bytes: what its client said that the file has. stay_s: how
    long the file stays; None: until it is deleted."""

    id: str
    owner: str
    filename: str
    purpose: str
    size_bytes: int
    created_at: int
    status: UploadStatus = "pending"
    file: str | None = None
    stay_s: int | None = None


class UploadStore:
    """The uploads of one daemon. owner: whose uploads a method knows; None: everybody's."""

    def __init__(self, database: Database, files: FileStore) -> None:
        self._database = database
        self._files = files

    def create(self, upload: StoredUpload) -> None:
        """Begin. Raises HttpError 413, StorageFailed."""
        with self._database.opened() as database:
            now = self._database.now(database)
            database.execute("DELETE FROM uploads WHERE kept_at < ?", (now - 2 * STAY_S,))
            count = "SELECT COUNT(*) FROM uploads WHERE owner = ? AND status = 'pending'"
            if database.execute(count, (upload.owner,)).fetchone()[0] >= MAX_PENDING:
                raise HttpError(
                    413,
                    "uploads_full",
                    f"{MAX_PENDING} uploads are pending: complete or cancel some",
                )
            row = (upload.id, upload.owner, upload.filename, upload.purpose, upload.size_bytes,
                   upload.created_at, upload.status, None, upload.stay_s, now)  # fmt: skip
            database.execute("INSERT INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def find(self, ident: str, owner: str | None) -> StoredUpload | None:
        """The upload with this id. Raises StorageFailed."""
        with self._database.opened() as database:
            return self._find(database, ident, owner)

    def add_part(self, upload: StoredUpload, part: FileWriter, ident: str, max_bytes: int) -> int:
        """Keep what was written as a part. max_bytes: of all files. Returns when it was made.
        Raises InvalidRequest for more than the upload shall have, HttpError 413, StorageFailed."""
        made = int(time.time())
        file = StoredFile(ident, upload.id, PART, part.size_bytes, made, made + STAY_S,
                          upload.owner)  # fmt: skip
        self._files.keep(file, part, max_bytes)
        with self._database.opened() as database:
            sizes = (
                "SELECT COALESCE(SUM(size_bytes), 0) FROM files WHERE purpose = ? AND filename = ?"
            )
            total = database.execute(sizes, (PART, upload.id)).fetchone()[0]
        if total > upload.size_bytes:
            self._files.delete(ident)
            raise InvalidRequest(
                f"the parts have {total} bytes, more than the {upload.size_bytes} of the upload",
                param="data",
            )
        return made

    def complete(
        self, upload: StoredUpload, part_ids: Sequence[str], md5: str | None, max_bytes: int
    ) -> StoredUpload:
        """Make the file of its parts, in this order. max_bytes: of all files. Raises Conflict for
        one that is not pending, InvalidRequest for parts that are not its own, are not all of its
        bytes, or have another sum; HttpError 413, StorageFailed."""
        self._set(upload, "pending", "completed")
        ident = new_file_id()
        try:
            with self._database.opened() as database:
                parts = _parts(database, upload)
            if len(set(part_ids)) != len(part_ids) or not set(part_ids) <= parts.keys():
                raise InvalidRequest("part_ids: not parts of this upload", param="part_ids")
            if sum(parts[part] for part in part_ids) != upload.size_bytes:
                raise InvalidRequest(
                    f"the parts do not have the {upload.size_bytes} bytes of the upload",
                    param="part_ids",
                )
            made = int(time.time())
            until = None if upload.stay_s is None else made + upload.stay_s
            file = StoredFile(ident, upload.filename, upload.purpose, upload.size_bytes, made,
                              until, upload.owner)  # fmt: skip
            self._join(file, part_ids, md5, max_bytes)
        except BaseException:
            self._set(upload, "completed", "pending")
            raise
        self._forget(parts)
        with self._database.opened() as database:
            database.execute("UPDATE uploads SET file = ? WHERE id = ?", (ident, upload.id))
        return replace(upload, status="completed", file=ident)

    def cancel(self, upload: StoredUpload) -> StoredUpload:
        """Forget its parts. Raises Conflict for one that is not pending, StorageFailed."""
        self._set(upload, "pending", "cancelled")
        with self._database.opened() as database:
            parts = _parts(database, upload)
        self._forget(parts)
        return replace(upload, status="cancelled")

    def _find(
        self, database: sqlite3.Connection, ident: str, owner: str | None
    ) -> StoredUpload | None:
        query = f"SELECT {_COLUMNS} FROM uploads WHERE id = ?1 AND (?2 IS NULL OR owner = ?2)"
        row = database.execute(query, (ident, owner)).fetchone()
        if row is None:
            return None
        found = StoredUpload(*row[:-1])
        over = found.status == "pending" and self._database.now(database) - row[-1] > STAY_S
        return replace(found, status="expired") if over else found

    def _set(self, upload: StoredUpload, before: str, after: UploadStatus) -> None:
        with self._database.opened() as database:
            found = self._find(database, upload.id, None)
            if found is None or found.status != before:
                status = "gone" if found is None else found.status
                raise Conflict(f"the upload {upload.id} is {status}, not {before}", param="id")
            database.execute("UPDATE uploads SET status = ? WHERE id = ?", (after, upload.id))

    def _join(
        self, file: StoredFile, part_ids: Sequence[str], md5: str | None, max_bytes: int
    ) -> None:
        digest = hashlib.md5(usedforsecurity=False)
        writer = self._files.writing(file.id)
        try:
            for part in part_ids:
                with self._files.path_of(part).open("rb") as stream:
                    while piece := stream.read(_PIECE_BYTES):
                        digest.update(piece)
                        writer.write(piece)
            if md5 is not None and digest.hexdigest() != md5.lower():
                raise InvalidRequest(
                    f"md5: the file has {digest.hexdigest()}, not {md5[:64]!r}", param="md5"
                )
            self._files.keep(file, writer, max_bytes, replaces=part_ids)
        finally:
            writer.drop()

    def _forget(self, parts: dict[str, int]) -> None:
        for part in parts:
            self._files.delete(part)
            self._files.path_of(part).unlink(missing_ok=True)


def new_part_id() -> str:
    """The id of a part to be."""
    return new_id("part").replace("-", "_")


def _parts(database: sqlite3.Connection, upload: StoredUpload) -> dict[str, int]:
    """The sizes of its parts by their ids."""
    query = "SELECT id, size_bytes FROM files WHERE purpose = ? AND filename = ?"
    return dict(database.execute(query, (PART, upload.id)))
