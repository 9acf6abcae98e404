"""Vector stores, their files and chunks: a SQLite file of the daemon's own.

Owns the file. Knows nothing of requests or models. Methods block on the disk; any thread may call
them. owner: whose stores a method knows; None: everybody's.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from runner.server.errors import HttpError
from runner.server.ids import new_id
from runner.server.openai.database import Database
from runner.server.openai.paging import PageQuery
from runner.server.openai.vector_stores.search import Filter, nearest

FILE_NAME: Final = "vector_stores.sqlite3"
_TABLES: Final = (
    """
CREATE TABLE IF NOT EXISTS stores (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,
    name TEXT NOT NULL, created_at INTEGER NOT NULL, metadata TEXT NOT NULL, model TEXT NOT NULL,
    days INTEGER, active_at INTEGER NOT NULL, active_age REAL NOT NULL
)
""",
    """
CREATE TABLE IF NOT EXISTS store_files (
    number INTEGER PRIMARY KEY AUTOINCREMENT, store TEXT NOT NULL, id TEXT NOT NULL,
    filename TEXT NOT NULL, created_at INTEGER NOT NULL, status TEXT NOT NULL, error TEXT,
    attributes TEXT NOT NULL, chunk_tokens INTEGER NOT NULL, overlap_tokens INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL, batch TEXT, UNIQUE (store, id)
)
""",
    """
CREATE TABLE IF NOT EXISTS chunks (
    number INTEGER PRIMARY KEY, file INTEGER NOT NULL, text TEXT NOT NULL, vector BLOB NOT NULL
)
""",
    "CREATE INDEX IF NOT EXISTS chunks_of_file ON chunks (file)",
    """
CREATE TABLE IF NOT EXISTS file_batches (
    id TEXT PRIMARY KEY, store TEXT NOT NULL, created_at INTEGER NOT NULL
)
""",
)
MAX_STORES: Final = 1000  # of one owner
MAX_FILES: Final = 10_000  # of one store
MAX_CHUNKS: Final = 50_000  # of one store
MAX_BATCHES: Final = 10_000  # of files, of one store
_READ_AT_ONCE: Final = 4096
_STORE: Final = "id, owner, name, created_at, metadata, model, days, active_at, active_age"
_FILE: Final = (
    "number, store, id, filename, created_at, status, error, attributes, chunk_tokens, "
    "overlap_tokens, size_bytes"
)

FileStatus = Literal["in_progress", "completed", "cancelled", "failed"]


@dataclass(frozen=True, slots=True)
class VectorStore:
    """What is known of a store. days: without use until it expires; None: it stays."""

    id: str
    owner: str
    name: str
    created_at: int
    metadata: dict[str, str]
    model: str
    days: int | None
    active_at: int
    expired: bool = False


@dataclass(frozen=True, slots=True)
class StoreFile:
    """A file of a store. error: OpenAI's code and a message."""

    number: int
    store: str
    id: str
    filename: str
    created_at: int
    status: FileStatus
    error: dict[str, str] | None
    attributes: dict[str, Any]
    chunk_tokens: int
    overlap_tokens: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to be taken into a store."""

    id: str
    filename: str
    chunk_tokens: int
    overlap_tokens: int
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """A chunk that was found. score: 0 to 1."""

    score: float
    file: StoreFile
    text: str


class VectorDatabase:
    """All vector stores of one daemon."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        """max_bytes: of all of one owner's chunks together."""
        self._database = Database(path, _TABLES, "the file of vector stores")
        self._max_bytes = max_bytes

    def create(
        self, owner: str, name: str, metadata: dict[str, str], model: str, days: int | None
    ) -> VectorStore:
        """A new store. Raises HttpError 413, StorageFailed."""
        ident, made = new_id("vs").replace("-", "_"), int(time.time())
        with self._database.opened() as database:
            count = "SELECT COUNT(*) FROM stores WHERE owner = ?"
            if database.execute(count, (owner,)).fetchone()[0] >= MAX_STORES:
                raise _full(f"{MAX_STORES} vector stores are kept at most; delete some")
            row = (ident, owner, name, made, json.dumps(metadata), model, days, made,
                   self._database.now(database))  # fmt: skip
            database.execute(
                f"INSERT INTO stores ({_STORE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row
            )
        return VectorStore(ident, owner, name, made, metadata, model, days, made)

    def find(self, ident: str, owner: str | None) -> VectorStore | None:
        """The store with this id. Raises StorageFailed."""
        query = f"SELECT {_STORE} FROM stores WHERE id = ?1 AND (?2 IS NULL OR owner = ?2)"
        with self._database.opened() as database:
            row = database.execute(query, (ident, owner)).fetchone()
            return None if row is None else self._store(database, row)

    def page(self, query: PageQuery, owner: str | None) -> tuple[list[VectorStore], bool]:
        """Some stores, and whether there are more. Raises StorageFailed."""
        where, values = ("1", ()) if owner is None else ("owner = ?", (owner,))
        with self._database.opened() as database:
            rows, more = query.rows(database, "stores", _STORE, where, values)
            return [self._store(database, row) for row in rows], more

    def change(self, ident: str, **values: Any) -> None:
        """Set columns of a store. Raises StorageFailed."""
        with self._database.opened() as database:
            for name, value in values.items():
                database.execute(f"UPDATE stores SET {name} = ? WHERE id = ?", (value, ident))

    def use(self, ident: str) -> None:
        """Note that a store is used. Raises StorageFailed."""
        with self._database.opened() as database:
            row = (int(time.time()), self._database.now(database), ident)
            database.execute("UPDATE stores SET active_at = ?, active_age = ? WHERE id = ?", row)

    def delete(self, ident: str) -> None:
        """Forget a store with its files' chunks. Raises StorageFailed."""
        with self._database.opened() as database:
            _drop_chunks(database, ident)
            for statement in (
                "DELETE FROM store_files WHERE store = ?",
                "DELETE FROM file_batches WHERE store = ?",
                "DELETE FROM stores WHERE id = ?",
            ):
                database.execute(statement, (ident,))

    def counts(self, ident: str, batch: str | None = None) -> tuple[dict[str, int], int]:
        """The files of a store, or of a batch of it, by their status; and their bytes. Raises
        StorageFailed."""
        query = (
            "SELECT status, COUNT(*), SUM(size_bytes) FROM store_files "
            "WHERE store = ?1 AND (?2 IS NULL OR batch = ?2) GROUP BY status"
        )
        counts = dict.fromkeys(("in_progress", "completed", "cancelled", "failed"), 0)
        size_bytes = 0
        with self._database.opened() as database:
            for status, count, size in database.execute(query, (ident, batch)):
                counts[status] = count
                size_bytes += size
        return {**counts, "total": sum(counts.values())}, size_bytes

    def add_files(
        self, store: VectorStore, files: Sequence[NewFile], batch: str | None = None
    ) -> list[StoreFile]:
        """Files to be read, in place of their earlier state. Raises HttpError 413,
        StorageFailed."""
        made = int(time.time())
        with self._database.opened() as database:
            for file in files:
                _drop_file(database, store.id, file.id)
                row = (store.id, file.id, file.filename, made, "in_progress", None,
                       json.dumps(dict(file.attributes)), file.chunk_tokens, file.overlap_tokens,
                       0, batch)  # fmt: skip
                database.execute(
                    f"INSERT INTO store_files ({_FILE.removeprefix('number, ')}, batch) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    row,
                )
            count = "SELECT COUNT(*) FROM store_files WHERE store = ?"
            if database.execute(count, (store.id,)).fetchone()[0] > MAX_FILES:
                raise _full(f"a vector store has at most {MAX_FILES} files")
            idents = {file.id for file in files}
            query = f"SELECT {_FILE} FROM store_files WHERE store = ? ORDER BY number"
            rows = database.execute(query, (store.id,)).fetchall()
        return [file for file in map(_file, rows) if file.id in idents]

    def file(self, store: str, ident: str) -> StoreFile | None:
        """A file of a store. Raises StorageFailed."""
        query = f"SELECT {_FILE} FROM store_files WHERE store = ? AND id = ?"
        with self._database.opened() as database:
            row = database.execute(query, (store, ident)).fetchone()
        return None if row is None else _file(row)

    def files(
        self, store: str, query: PageQuery, status: str | None = None, batch: str | None = None
    ) -> tuple[list[StoreFile], bool]:
        """Some files of a store, and whether there are more. Raises StorageFailed."""
        where, values = "store = ?", [store]
        for column, value in (("status", status), ("batch", batch)):
            if value is not None:
                where += f" AND {column} = ?"
                values.append(value)
        with self._database.opened() as database:
            rows, more = query.rows(database, "store_files", _FILE, where, values)
        return [_file(row) for row in rows], more

    def set_attributes(self, file: StoreFile, attributes: Mapping[str, Any]) -> None:
        """Replace them. Raises StorageFailed."""
        with self._database.opened() as database:
            row = (json.dumps(dict(attributes)), file.number)
            database.execute("UPDATE store_files SET attributes = ? WHERE number = ?", row)

    def remove_file(self, file: StoreFile) -> None:
        """Take a file out of its store. Raises StorageFailed."""
        with self._database.opened() as database:
            _drop_file(database, file.store, file.id)

    def end(self, number: int, status: FileStatus, error: dict[str, str] | None = None) -> None:
        """A file that is being read has come to its end. Raises StorageFailed."""
        with self._database.opened() as database:
            row = (status, None if error is None else json.dumps(error), number)
            database.execute(
                "UPDATE store_files SET status = ?, error = ? "
                "WHERE number = ? AND status = 'in_progress'",
                row,
            )

    def end_all(self, error: dict[str, str]) -> None:
        """Mark the files that were being read as failed. Raises StorageFailed."""
        if self._database.exists:
            with self._database.opened() as database:
                database.execute(
                    "UPDATE store_files SET status = 'failed', error = ? "
                    "WHERE status = 'in_progress'",
                    (json.dumps(error),),
                )

    def cancel(self, store: str, batch: str) -> None:
        """Cancel a batch of files. Raises StorageFailed."""
        with self._database.opened() as database:
            database.execute(
                "UPDATE store_files SET status = 'cancelled' "
                "WHERE store = ? AND batch = ? AND status = 'in_progress'",
                (store, batch),
            )

    def put_chunks(
        self, store: VectorStore, number: int, chunks: Sequence[tuple[str, bytes]]
    ) -> bool:
        """Store the chunks of a file that is being read; False: the file was removed meanwhile.
        Raises HttpError 413, StorageFailed."""
        with self._database.opened() as database:
            query = "SELECT status FROM store_files WHERE number = ?"
            row = database.execute(query, (number,)).fetchone()
            if row is None or row[0] != "in_progress":
                return False
            database.executemany(
                "INSERT INTO chunks (file, text, vector) VALUES (?, ?, ?)",
                ((number, text, vector) for text, vector in chunks),
            )
            size_bytes = sum(len(text.encode()) + len(vector) for text, vector in chunks)
            database.execute(
                "UPDATE store_files SET size_bytes = ?, status = 'completed' WHERE number = ?",
                (size_bytes, number),
            )
            self._check_room(database, store)
        return True

    def texts(self, file: StoreFile) -> list[str]:
        """Get the chunks of a file. Raises StorageFailed."""
        query = "SELECT text FROM chunks WHERE file = ? ORDER BY number"
        with self._database.opened() as database:
            return [row[0] for row in database.execute(query, (file.number,))]

    def search(
        self, store: str, queries: Sequence[Sequence[float]], only: Filter, count: int
    ) -> list[Found]:
        """What is nearest to any of queries, best first. Raises StorageFailed."""
        files = f"SELECT {_FILE} FROM store_files WHERE store = ? AND status = 'completed'"
        with self._database.opened() as database:
            known = {file.number: file for file in map(_file, database.execute(files, (store,)))}
            wanted = [number for number, file in known.items() if only.takes(file.attributes)]
            best = nearest(_vectors(database, wanted), queries, count)
            query = "SELECT file, text FROM chunks WHERE number = ?"
            found = [(score, *database.execute(query, (n,)).fetchone()) for score, n in best]
        return [Found(score, known[file], text) for score, file, text in found]

    def create_batch(self, store: str) -> tuple[str, int]:
        """The id of a new batch of files, and when it was made. Raises HttpError 413,
        StorageFailed."""
        row = (new_id("vsfb").replace("-", "_"), store, int(time.time()))
        with self._database.opened() as database:
            count = "SELECT COUNT(*) FROM file_batches WHERE store = ?"
            if database.execute(count, (store,)).fetchone()[0] >= MAX_BATCHES:
                raise _full(f"{MAX_BATCHES} batches of files are kept at most; make another store")
            database.execute("INSERT INTO file_batches VALUES (?, ?, ?)", row)
        return row[0], row[2]

    def batch_made(self, store: str, batch: str) -> int | None:
        """When a batch was made; None: the store has none such. Raises StorageFailed."""
        query = "SELECT created_at FROM file_batches WHERE id = ? AND store = ?"
        with self._database.opened() as database:
            row = database.execute(query, (batch, store)).fetchone()
        return None if row is None else int(row[0])

    def _store(self, database: sqlite3.Connection, row: Sequence[Any]) -> VectorStore:
        ident, owner, name, made, metadata, model, days, active_at, age = row
        expired = days is not None and self._database.now(database) - age > days * 86400
        if expired:
            _drop_chunks(database, ident)
        return VectorStore(
            ident, owner, name, made, json.loads(metadata), model, days, active_at, expired
        )

    def _check_room(self, database: sqlite3.Connection, store: VectorStore) -> None:
        used = (
            "SELECT SUM(size_bytes) FROM store_files JOIN stores ON stores.id = store "
            "WHERE owner = ?"
        )
        if database.execute(used, (store.owner,)).fetchone()[0] > self._max_bytes:
            raise _full(f"vector stores hold {self._max_bytes} bytes at most; delete some")
        count = (
            "SELECT COUNT(*) FROM chunks WHERE file IN "
            "(SELECT number FROM store_files WHERE store = ?)"
        )
        if database.execute(count, (store.id,)).fetchone()[0] > MAX_CHUNKS:
            raise _full(f"a vector store has at most {MAX_CHUNKS} chunks; begin another one")


def _file(row: Sequence[Any]) -> StoreFile:
    error = None if row[6] is None else json.loads(row[6])
    values = (*row[:6], error, json.loads(row[7]), *row[8:])
    return StoreFile(*values)


def _vectors(
    database: sqlite3.Connection, files: Sequence[int]
) -> Iterator[list[tuple[int, bytes]]]:
    """The vectors of files, some at a time."""
    batch: list[tuple[int, bytes]] = []
    for file in files:
        for row in database.execute("SELECT number, vector FROM chunks WHERE file = ?", (file,)):
            batch.append(row)
            if len(batch) == _READ_AT_ONCE:
                yield batch
                batch = []
    if batch:
        yield batch


def _drop_chunks(database: sqlite3.Connection, store: str) -> None:
    database.execute(
        "DELETE FROM chunks WHERE file IN (SELECT number FROM store_files WHERE store = ?)",
        (store,),
    )


def _drop_file(database: sqlite3.Connection, store: str, ident: str) -> None:
    gone = "DELETE FROM store_files WHERE store = ? AND id = ? RETURNING number"
    for (number,) in database.execute(gone, (store, ident)).fetchall():
        database.execute("DELETE FROM chunks WHERE file = ?", (number,))


def _full(message: str) -> HttpError:
    return HttpError(413, "vector_stores_full", message)
