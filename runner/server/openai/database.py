"""A SQLite file of the daemon's own: made with its first use, for its user only.

A damaged file is set aside, so that one bad page does not disable a whole API. Knows nothing of its
content.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from runner.errors import StorageFailed
from runner.library.files import set_aside, uptime_s

log = logging.getLogger("hearth")

MAX_GAP_S = 7 * 86400.0
_WAIT_S = 10.0  # for another thread's transaction
_NOTE_S = 60.0  # how often the time is written down
_CHECKED_BYTES = 256 << 20  # a file up to that size is read through before its first use
_CACHE_KIB = 256  # of pages, until it is closed; SQLite's own 2 MiB are for one that stays open
_SIDE_FILES = ("", "-wal", "-shm")
_CLOCK_TABLE = "CREATE TABLE IF NOT EXISTS clock (one INTEGER PRIMARY KEY, wall REAL, age REAL)"
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
_OTHER_SCHEMA = ("no such table", "no such column", "table ")  # our statements are constants
_UNWRITABLE = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE,
               sqlite3.SQLITE_IOERR_TRUNCATE)  # fmt: skip


class Database:
    """The file. It is opened for each use, so any thread may use it."""

    def __init__(self, path: Path, tables: Sequence[str], content: str) -> None:
        """tables: statements that make what is missing. content: what is in it, for messages."""
        self.path = path
        self._tables = (_CLOCK_TABLE, *tables)
        self._content = content
        self._mending = threading.Lock()
        self._opening = threading.Lock()
        self._checked: int | None = None  # the inode that was read through
        self._age_at_boot: float | None = None
        self._noted_s = 0.0

    @property
    def exists(self) -> bool:
        """False before its first use."""
        return os.path.lexists(self.path)

    @contextlib.contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """The database, in one transaction; a damaged one is replaced by an empty one. Blocks on
        the disk. Raises StorageFailed."""
        inode = None
        try:
            database = self._connected()
            inode = self._inode()
            with contextlib.closing(database), database:
                yield database
        except sqlite3.Error as error:
            with self._mending:
                if self._is_damage(error) and self._inode() == inode:
                    self._set_all_aside(error)
            raise self._fault(error) from None
        except OSError as error:
            raise self._fault(error) from None

    def now(self, database: sqlite3.Connection) -> float:
        """Seconds since 1970 by which what is kept grows old. They go on as the machine's uptime
        does, and from one daemon to the next by what the date says, unless that is less than
        nothing or more than MAX_GAP_S: a date that is set makes nothing older or younger."""
        wall, uptime = time.time(), uptime_s()
        if self._age_at_boot is None:
            row = database.execute("SELECT wall, age FROM clock").fetchone()
            age = wall
            if row is not None:
                gap = wall - row[0]
                age = row[1] + (gap if 0 <= gap <= MAX_GAP_S else 0)
            self._age_at_boot = age - uptime
        age = self._age_at_boot + uptime
        if not self._noted_s or age - self._noted_s > _NOTE_S:
            database.execute("INSERT OR REPLACE INTO clock VALUES (1, ?, ?)", (wall, age))
            self._noted_s = age
        return age

    def _connected(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.Error as error:
            if not self._is_damage(error):
                raise
        with self._mending:  # another thread may have mended it
            try:
                return self._connect()
            except sqlite3.Error as error:
                if not self._is_damage(error):
                    raise
                self._set_all_aside(error)
                return self._connect()

    def _connect(self) -> sqlite3.Connection:
        for path in self._paths():
            if not _is_file(path, follow=path == self.path):
                self._set_aside(path, "not a file")
        if not self.exists:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600))  # for us only
        database = sqlite3.connect(self.path, timeout=_WAIT_S)
        try:
            database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            with self._opening:  # SQLite does not wait for who else makes it a WAL
                database.execute("PRAGMA journal_mode=WAL")
                self._read_through(database)
                for statement in self._tables:
                    database.execute(statement)
                database.commit()
        except BaseException:
            database.close()
            raise
        return database

    def _read_through(self, database: sqlite3.Connection) -> None:
        status = self.path.stat()
        if self._checked == status.st_ino:
            return
        found = "ok"
        if status.st_size <= _CHECKED_BYTES:
            (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            error = sqlite3.DatabaseError(str(found))
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
        database.execute("PRAGMA user_version = 1")  # a damaged header may forbid writing
        self._checked = status.st_ino

    def _inode(self) -> int | None:
        with contextlib.suppress(OSError):
            return self.path.stat().st_ino
        return None

    def _paths(self) -> list[Path]:
        """The file and what SQLite has beside it, those of them that are there."""
        paths = [self.path.with_name(self.path.name + suffix) for suffix in _SIDE_FILES]
        return [path for path in paths if os.path.lexists(path)]

    def _is_damage(self, error: sqlite3.Error) -> bool:
        if _code(error) & 0xFF == sqlite3.SQLITE_READONLY:  # its header may say so
            return os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)
        return _code(error) & 0xFF in _DAMAGE or str(error).startswith(_OTHER_SCHEMA)

    def _set_all_aside(self, error: sqlite3.Error) -> None:
        for path in self._paths():
            self._set_aside(path, error)

    def _set_aside(self, path: Path, reason: object) -> None:
        with contextlib.suppress(FileNotFoundError):
            aside = set_aside(path)
            log.error("%s: %s is damaged (%s) and was set aside as %s; a new file begins",
                      self._content, path, reason, aside.name)  # fmt: skip

    def _fault(self, error: sqlite3.Error | OSError) -> StorageFailed:
        cause = "ENOSPC" if _is_full(error) else _errno_name(error)
        return StorageFailed(
            f"{self._content} ({self.path.name}) cannot be used: {error}", errno=cause
        )


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0)


def _is_file(path: Path, follow: bool) -> bool:
    """follow: a link to a file is one too, for somebody may keep it elsewhere."""
    try:
        return stat.S_ISREG((path.stat() if follow else path.lstat()).st_mode)
    except FileNotFoundError:
        return not path.is_symlink()  # it has gone meanwhile
    except OSError:
        return False


def _is_full(error: Exception) -> bool:
    """SQLite has a code of its own for ENOSPC, but not for a quota or the largest file."""
    if not isinstance(error, sqlite3.Error):
        return False
    return _code(error) & 0xFF == sqlite3.SQLITE_FULL or _code(error) in _UNWRITABLE


def _errno_name(error: Exception) -> str | None:
    return errno.errorcode.get(error.errno or 0) if isinstance(error, OSError) else None
