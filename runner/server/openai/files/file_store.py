"""The stored files: their bytes in a folder, their metadata in SQLite.

Owns the folder. A file exists if it has a row: bytes without a row are leftovers. Knows nothing of
requests. Methods block on the disk; any thread may call them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from runner.errors import Conflict, StorageFailed
from runner.server.errors import HttpError
from runner.server.ids import new_id
from runner.server.openai.database import Database
from runner.server.openai.paging import PageQuery

# kept_at: by the age that Database.now tells, which is what a file's time is counted from.
TABLES = (
    """
CREATE TABLE IF NOT EXISTS files (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, filename TEXT NOT NULL,
    purpose TEXT NOT NULL, size_bytes INTEGER NOT NULL, created_at INTEGER NOT NULL,
    expires_at INTEGER, owner TEXT NOT NULL, kept_at REAL NOT NULL
)
""",
    """
CREATE TABLE IF NOT EXISTS holds (
    file TEXT NOT NULL, holder TEXT NOT NULL, PRIMARY KEY (file, holder)
) WITHOUT ROWID
""",
)
_COLUMNS = "id, filename, purpose, size_bytes, created_at, expires_at, owner"
_OVER = "expires_at IS NOT NULL AND kept_at + expires_at - created_at <= ?1"
_SEEN = "(?2 IS NULL OR owner = ?2)"
_UNFINISHED = ".part"
PART = "upload-part"  # the purpose of what is shown to nobody
_WHOLE = f"purpose <> '{PART}'"
MAX_FILES = 100_000


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file's metadata. Times in seconds since 1970; expires_at None: it stays. owner: the
    id of the caller whose it is."""

    id: str
    filename: str
    purpose: str
    size_bytes: int
    created_at: int
    expires_at: int | None = None
    owner: str = ""


def new_file_id() -> str:
    """The id of a file to be."""
    return new_id("file")


class FileStore:
    """The stored files of one daemon. owner: whose files a method knows; None: everybody's."""

    def __init__(self, folder: Path, database: Database) -> None:
        self._folder = folder
        self._database = database

    def path_of(self, ident: str) -> Path:
        """Where the bytes of a stored file are."""
        return self._folder / ident

    def writing(self, ident: str) -> FileWriter:
        """A new file, readable by its owner only; nothing of it counts before it is kept. What
        an earlier attempt left under the same id goes. Raises StorageFailed."""
        with _faults():
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = self._folder / (ident + _UNFINISHED)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            return FileWriter(path, os.fdopen(os.open(path, flags, 0o600), "wb"))

    def keep(
        self,
        file: StoredFile,
        incoming: FileWriter,
        max_bytes: int,
        replaces: Sequence[str] = (),
    ) -> None:
        """Keep what was written. replaces: files that are forgotten at the same time, but for their
        bytes. Raises StorageFailed, and HttpError 413 when all files together, or those of its
        owner, would be more than max_bytes allow."""
        incoming.finish(self.path_of(file.id))
        try:
            with self._database.opened() as database:
                for ident in replaces:
                    database.execute("DELETE FROM files WHERE id = ?", (ident,))
                add_row(database, file, self._database.now(database))
                if _free(database, max_bytes, file.owner) < 0:
                    raise full(max_bytes)
        except BaseException:
            self.path_of(file.id).unlink(missing_ok=True)
            raise

    def free_bytes(self, max_bytes: int, owner: str) -> int:
        """What owner may add where all files together may be max_bytes. Raises StorageFailed."""
        self.expire()
        with self._database.opened() as database:
            return max(0, _free(database, max_bytes, owner))

    def find(self, ident: str, owner: str | None = None) -> StoredFile | None:
        """The file with this id; None also when it has expired. Raises StorageFailed."""
        if not self._database.exists:
            return None
        query = (
            f"SELECT {_COLUMNS} FROM files WHERE id = ?3 AND {_SEEN} AND {_WHOLE} AND NOT ({_OVER})"
        )
        with self._database.opened() as database:
            values = (self._database.now(database), owner, ident)
            row = database.execute(query, values).fetchone()
        return None if row is None else StoredFile(*row)

    def page(
        self, query: PageQuery, purpose: str | None = None, owner: str | None = None
    ) -> tuple[list[StoredFile], bool]:
        """The requested files, and whether there are more. Raises StorageFailed."""
        if not self._database.exists:
            return [], False
        self.expire()
        sign, order = ("<", "DESC") if query.newest_first else (">", "ASC")
        statement = (
            f"SELECT {_COLUMNS} FROM files "
            f"WHERE {_SEEN} AND {_WHOLE} AND (?1 IS NULL OR purpose = ?1) AND "
            f"(?3 IS NULL OR number {sign} (SELECT number FROM files WHERE id = ?3 AND {_SEEN})) "
            f"ORDER BY number {order} LIMIT ?4"
        )
        values = (purpose, owner, query.after, query.limit + 1)
        with self._database.opened() as database:
            rows = database.execute(statement, values).fetchall()
        return [StoredFile(*row) for row in rows[: query.limit]], len(rows) > query.limit

    def delete(self, ident: str, owner: str | None = None) -> bool:
        """Forget a file; False when there is none. Raises Conflict while something reads it,
        StorageFailed."""
        if not self._database.exists:
            return False
        with self._database.opened() as database:
            query = (
                f"SELECT holder FROM files LEFT JOIN holds ON file = id WHERE id = ?1 AND {_SEEN}"
            )
            row = database.execute(query, (ident, owner)).fetchone()
            if row is not None and row[0] is not None:
                raise Conflict(
                    f"{row[0]} is using this file; cancel it or wait until it finishes",
                    param="id",
                )
            database.execute(f"DELETE FROM files WHERE id = ?1 AND {_SEEN}", (ident, owner))
        if row is not None:
            with _faults():
                self.path_of(ident).unlink(missing_ok=True)
        return row is not None

    def expire(self) -> None:
        """Forget the files whose time is over. Raises StorageFailed."""
        with self._database.opened() as database:
            query = f"SELECT id FROM files WHERE {_OVER} AND id NOT IN (SELECT file FROM holds)"
            now = self._database.now(database)
            over = [ident for (ident,) in database.execute(query, (now,))]
        for ident in over:
            self.delete(ident)

    def sweep(self) -> None:
        """Remove what a killed daemon left: bytes that have no row. Nothing may be written
        meanwhile. Raises StorageFailed."""
        if not self._folder.is_dir() or not self._database.exists:
            return
        with self._database.opened() as database:
            known = {ident for (ident,) in database.execute("SELECT id FROM files")}
        with _faults():
            for pattern in ("file-*", "part_*"):
                for path in self._folder.glob(pattern):
                    if path.name not in known:
                        path.unlink(missing_ok=True)


class FileWriter:
    """A file that is being written."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self.size_bytes = 0
        self._path = path
        self._stream = stream

    def write(self, data: bytes) -> None:
        """Add data. Raises StorageFailed."""
        with _faults():
            self._stream.write(data)
        self.size_bytes += len(data)

    def finish(self, path: Path) -> None:
        """It is whole, and gets its place. Raises StorageFailed."""
        with _faults():
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._stream.close()
            self._path.rename(path)

    def drop(self) -> None:
        """Forget it; one that has its place stays."""
        with contextlib.suppress(OSError):
            self._stream.close()
        self._path.unlink(missing_ok=True)


def add_row(database: sqlite3.Connection, file: StoredFile, now: float) -> None:
    """Note a file whose bytes are in their place; one with its id is replaced. now: as
    Database.now says."""
    values = (file.id, file.filename, file.purpose, file.size_bytes, file.created_at,
              file.expires_at, file.owner, now)  # fmt: skip
    database.execute(
        f"INSERT OR REPLACE INTO files ({_COLUMNS}, kept_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        values,
    )


def _free(database: sqlite3.Connection, max_bytes: int, owner: str) -> int:
    """The bytes that owner may add, below 0 when there is too much already. A key has half of all
    room at most, so that one of them cannot take it from the others."""
    query = (
        "SELECT COALESCE(SUM(size_bytes), 0), COUNT(*), "
        "COALESCE(SUM(size_bytes) FILTER (WHERE owner = ?1), 0), "
        "COUNT(*) FILTER (WHERE owner = ?1) FROM files"
    )
    row: tuple[int, int, int, int] = database.execute(query, (owner,)).fetchone()
    used, count, own, own_count = row
    if count > MAX_FILES or (owner and own_count > MAX_FILES // 2):
        return -1
    return min(max_bytes - used, max_bytes // 2 - own) if owner else max_bytes - used


def full(max_bytes: int) -> HttpError:
    """The refusal of a file for which there is no room."""
    return HttpError(
        413,
        "files_full",
        f"at most {MAX_FILES} files are stored, of {max_bytes} bytes together "
        "(HEARTH_MAX_FILES_SIZE), and half of that for one key; delete some",
    )


@contextlib.contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFailed(
            f"the folder of uploaded files is unusable: {error.strerror}",
            errno=errno.errorcode.get(error.errno or 0),
        ) from None
