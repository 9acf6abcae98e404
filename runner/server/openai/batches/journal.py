"""The state of batches: a SQLite file with their states and finished lines.

A finished line stays finished: the daemon after a killed one continues from here. The file is that
of the stored files, so that the end of a batch and its results are one transaction. Methods block
on the disk; any thread may call them.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from runner.server.openai.answers import BatchStatus
from runner.server.openai.database import Database
from runner.server.openai.files.file_store import StoredFile, add_row
from runner.server.openai.paging import PageQuery

Ending = Literal["completed", "expired", "cancelled"]
KEEP_S = 30 * 86400.0
MAX_ENDED = 10_000  # batches of one owner
log = logging.getLogger("hearth.batches")
OPEN = ("validating", "in_progress", "finalizing", "cancelling")
# stored_at: by the age that Database.now tells.
TABLES = (
    """
CREATE TABLE IF NOT EXISTS batches (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, is_open INTEGER NOT NULL,
    batch TEXT NOT NULL, owner TEXT NOT NULL, stored_at REAL NOT NULL
)
""",
    """
CREATE TABLE IF NOT EXISTS results (
    batch TEXT NOT NULL, line INTEGER NOT NULL, failed INTEGER NOT NULL, result TEXT NOT NULL,
    PRIMARY KEY (batch, line)
) WITHOUT ROWID
""",
)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch. times: when it came to a state, by OpenAI's name, in seconds since 1970. ending:
    what it will be once its files are written. owner: the id of the caller whose it is."""

    id: str
    endpoint: str
    input_file_id: str
    created_at: int
    expires_at: int
    status: BatchStatus = "validating"
    ending: Ending | None = None
    metadata: dict[str, str] | None = None
    output_stay_s: int | None = None
    times: dict[str, int] = field(default_factory=dict)
    model: str | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0
    errors: list[dict[str, Any]] | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    usage: dict[str, Any] | None = None
    owner: str = ""

    @property
    def is_open(self) -> bool:
        """True while there is something to do."""
        return self.status in OPEN

    @property
    def is_cancelled(self) -> bool:
        """Whether its cancellation was requested but has not finished."""
        return self.status == "cancelling"


@dataclass(frozen=True, slots=True)
class LineResult:
    """A line that is done. text: what its line in the output or error file is."""

    line: int
    failed: bool
    text: str


class BatchJournal:
    """The file's part that is about batches. All methods raise StorageFailed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, batch: Batch) -> None:
        """Keep the state of a batch."""
        with self._database.opened() as database:
            _save(database, batch, self._database.now(database))

    def find(self, ident: str, owner: str | None = None) -> Batch | None:
        """The current state of a batch; owner: whose it must be, None: anybody's."""
        if not self._database.exists:
            return None
        query = "SELECT batch FROM batches WHERE id = ?1 AND (?2 IS NULL OR owner = ?2)"
        with self._database.opened() as database:
            found = _batches(database.execute(query, (ident, owner)))
            return _counted(database, found[0]) if found else None

    def page(self, query: PageQuery, owner: str | None = None) -> tuple[list[Batch], bool]:
        """Some batches, and whether there are more."""
        if not self._database.exists:
            return [], False
        where, values = ("1", ()) if owner is None else ("owner = ?", (owner,))
        with self._database.opened() as database:
            rows, more = query.rows(database, "batches", "batch", where, values)
            return [_counted(database, batch) for batch in _batches(rows)], more

    def open_batches(self) -> list[Batch]:
        """All that have something to do, the oldest first."""
        if not self._database.exists:
            return []
        query = "SELECT batch FROM batches WHERE is_open ORDER BY number"
        with self._database.opened() as database:
            return _batches(database.execute(query))

    def left_s(self, batch: Batch) -> float:
        """How much of its time a batch has left."""
        query = "SELECT stored_at FROM batches WHERE id = ?"
        with self._database.opened() as database:
            row = database.execute(query, (batch.id,)).fetchone()
            began = batch.created_at if row is None else row[0]
            return batch.expires_at - batch.created_at + began - self._database.now(database)

    def add(self, ident: str, result: LineResult) -> None:
        """Note that a line is done; the first result of a line counts."""
        values = (ident, result.line, result.failed, result.text)
        with self._database.opened() as database:
            database.execute("INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?)", values)

    def done(self, ident: str) -> set[int]:
        """The numbers of the lines that are done."""
        query = "SELECT line FROM results WHERE batch = ?"
        with self._database.opened() as database:
            return {line for (line,) in database.execute(query, (ident,))}

    def results(self, ident: str) -> Iterator[LineResult]:
        """The lines that are done, in their order."""
        query = "SELECT line, failed, result FROM results WHERE batch = ? ORDER BY line"
        with self._database.opened() as database:
            for line, failed, text in database.execute(query, (ident,)):
                yield LineResult(line, bool(failed), text)

    def finish(self, batch: Batch, files: Sequence[StoredFile]) -> None:
        """Keep the end of a batch together with its files, whose bytes are in their places. Ended
        batches older than KEEP_S go, and the oldest of an owner with more than MAX_ENDED; files
        stay."""
        with self._database.opened() as database:
            now = self._database.now(database)
            for file in files:
                add_row(database, file, now)
            _save(database, batch, now)
            database.execute("DELETE FROM results WHERE batch = ?", (batch.id,))
            old = "NOT is_open AND stored_at < ?"
            database.execute(f"DELETE FROM batches WHERE {old}", (now - KEEP_S,))
            surplus = (
                "SELECT number FROM batches WHERE owner = ? AND NOT is_open "
                "ORDER BY number DESC LIMIT -1 OFFSET ?"
            )
            database.execute(
                f"DELETE FROM batches WHERE number IN ({surplus})", (batch.owner, MAX_ENDED)
            )


def _save(database: sqlite3.Connection, batch: Batch, now: float) -> None:
    database.execute(
        "INSERT INTO batches (id, is_open, batch, owner, stored_at) VALUES (?1, ?2, ?3, ?4, ?5) "
        "ON CONFLICT (id) DO UPDATE SET is_open = ?2, batch = ?3",
        (batch.id, batch.is_open, json.dumps(asdict(batch)), batch.owner, now),
    )
    if batch.is_open:
        hold = "INSERT OR IGNORE INTO holds VALUES (?, ?)"
    else:
        hold = "DELETE FROM holds WHERE file = ? AND holder = ?"
    database.execute(hold, (batch.input_file_id, batch.id))


def _batches(rows: Iterable[tuple[str]]) -> list[Batch]:
    """The batches of rows; a damaged one is told of and passed over."""
    found = []
    for (text,) in rows:
        try:
            found.append(Batch(**json.loads(text)))
        except (ValueError, TypeError) as error:
            log.error("a batch is damaged and left out: %s", error)
    return found


def _counted(database: sqlite3.Connection, batch: Batch) -> Batch:
    """With the lines that are done, which an open batch does not know itself."""
    if not batch.is_open:
        return batch
    query = "SELECT COUNT(*), COALESCE(SUM(failed), 0) FROM results WHERE batch = ?"
    done, failed = database.execute(query, (batch.id,)).fetchone()
    return Batch(**{**asdict(batch), "completed": done - failed, "failed": failed})
