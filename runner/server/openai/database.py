"""A SQLite file of the daemon's own: made with its first use, for its user only.

Knows nothing of what is kept in it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from runner.errors import StorageFailed

_WAIT_S = 10.0  # for another thread's transaction


class Database:
    """The file. Each use opens it anew, so that any thread may."""

    def __init__(self, path: Path, tables: Sequence[str], content: str) -> None:
        """tables: statements that make them where they are missing. content: what is in it, for
        messages."""
        self.path = path
        self._tables = tables
        self._content = content

    @property
    def exists(self) -> bool:
        """False before its first use."""
        return self.path.exists()

    @contextlib.contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """The database, in one transaction. Blocks on the disk. Raises StorageFailed."""
        try:
            if not self.exists:
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600))  # for us only
            with contextlib.closing(sqlite3.connect(self.path, timeout=_WAIT_S)) as database:
                database.execute("PRAGMA journal_mode=WAL")
                for table in self._tables:
                    database.execute(table)
                with database:
                    yield database
        except (sqlite3.Error, OSError) as error:
            raise StorageFailed(f"{self._content} cannot be used: {error}") from None
