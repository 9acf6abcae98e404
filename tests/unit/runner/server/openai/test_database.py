"""The daemon's own SQLite files: damaged ones begin anew, and a date that is set ages nothing."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runner.errors import StorageFailed
from runner.server.openai import database as module
from runner.server.openai.database import MAX_GAP_S, Database

DAY_S = 86400.0
TABLES = ("CREATE TABLE IF NOT EXISTS things (thing TEXT)",)


class Clock:
    """A machine's date and its uptime, in seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.date = time.time()
        self.uptime = 1000.0
        monkeypatch.setattr(module.time, "time", lambda: self.date)
        monkeypatch.setattr(module, "uptime_s", lambda: self.uptime)

    def pass_by(self, seconds: float) -> None:
        self.date += seconds
        self.uptime += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def database_in(folder: Path) -> Database:
    return Database(folder / "things.sqlite3", TABLES, "the file of things")


def put(database: Database, thing: str = "x") -> None:
    with database.opened() as opened:
        opened.execute("INSERT INTO things VALUES (?)", (thing,))


def things(database: Database) -> list[str]:
    with database.opened() as opened:
        return [thing for (thing,) in opened.execute("SELECT thing FROM things")]


def age(database: Database) -> float:
    with database.opened() as opened:
        return database.now(opened)


@pytest.mark.parametrize("jump", [400 * DAY_S, -400 * DAY_S])
def test_a_date_that_is_set_makes_nothing_older(clock: Clock, tmp_path: Path, jump: float) -> None:
    database = database_in(tmp_path)
    before = age(database)
    clock.date += jump
    clock.pass_by(100)
    assert age(database) - before == pytest.approx(100)
    for _ in range(20):  # daemons that follow
        clock.pass_by(100)
        assert age(database_in(tmp_path)) - before < DAY_S
    clock.date -= jump
    assert age(database_in(tmp_path)) - before < DAY_S


@pytest.mark.parametrize("gap", [0.0, DAY_S, MAX_GAP_S - 1])
def test_the_time_between_two_daemons_counts(clock: Clock, tmp_path: Path, gap: float) -> None:
    before = age(database_in(tmp_path))
    clock.date += gap
    clock.uptime = 5.0  # the machine was started meanwhile
    assert age(database_in(tmp_path)) - before == pytest.approx(gap)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


def replace_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.unlink()
        make(path)

    return change


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "one byte": lambda path: os.truncate(path, 1),
    "empty": lambda path: os.truncate(path, 0),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "text": lambda path: path.write_text('["not", "a", "database"]' * 100),
    "header": lambda path: flip(path, 3),
    "page size": lambda path: flip(path, 16),
    "write version": lambda path: flip(path, 18),
    "read version": lambda path: flip(path, 19),
    "page type": lambda path: flip(path, 4096),
    "folder": replace_by(Path.mkdir),
    "loop": replace_by(lambda path: path.symlink_to(path.name)),
    "link to nothing": replace_by(lambda path: path.symlink_to("/no/such/folder/file")),
    "link elsewhere": replace_by(lambda path: path.symlink_to("/etc/passwd")),
    "device": replace_by(lambda path: path.symlink_to("/dev/zero")),
    "pipe": replace_by(os.mkfifo),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("side", ["", "-wal", "-shm"])
def test_a_damaged_file_is_set_aside_and_a_new_one_begins(
    tmp_path: Path, kind: str, side: str
) -> None:
    put(database_in(tmp_path))
    path = tmp_path / f"things.sqlite3{side}"
    if side:
        path.write_bytes(bytes(8192))
    was = os.lstat("/etc/passwd")
    DAMAGE[kind](path)
    database = database_in(tmp_path)
    found = things(database)
    put(database, "new")
    assert things(database) == [*found, "new"]
    if not side and kind not in ("empty", "one byte"):  # which SQLite takes for new files
        assert found == []
        assert os.path.lexists(tmp_path / "things.sqlite3.damaged-1")
    assert stat.S_IMODE((tmp_path / "things.sqlite3").stat().st_mode) == 0o600
    assert os.lstat("/etc/passwd").st_mtime_ns == was.st_mtime_ns


def test_damage_that_comes_later_is_told_once(tmp_path: Path) -> None:
    database = database_in(tmp_path)
    with database.opened() as opened:
        opened.executemany("INSERT INTO things VALUES (?)", [("x" * 500,)] * 500)
    with sqlite3.connect(database.path) as opened:
        opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    opened.close()
    data = bytearray(database.path.read_bytes())
    data[3 * 4096 : 20 * 4096] = b"\xff" * (17 * 4096)
    database.path.write_bytes(data)
    with pytest.raises(StorageFailed, match=r"things\.sqlite3"):
        things(database)
    assert things(database) == []


def test_a_wrong_schema_is_damage(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "things.sqlite3") as opened:
        opened.execute("CREATE TABLE things (other TEXT)")
    opened.close()
    database = database_in(tmp_path)
    with pytest.raises(StorageFailed):
        things(database)
    assert things(database) == []


def test_threads_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    for number in range(5):
        database = Database(tmp_path / f"{number}.sqlite3", TABLES, "things")
        together = threading.Barrier(8)

        def use(database: Database = database, together: threading.Barrier = together) -> None:
            together.wait(60)
            put(database)

        with ThreadPoolExecutor(8) as threads:
            for done in [threads.submit(use) for _ in range(8)]:
                done.result()
