"""The access log's file: its size, a disk that does not take it, and one that is too slow."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from pathlib import Path

import pytest

from runner.server import access_log
from runner.server.access_log import AccessLog
from runner.server.request_log import RequestRecord


def record(path: str = "/x") -> RequestRecord:
    """Of a request that has ended."""
    return RequestRecord({"method": "GET", "path": path, "client": ("127.0.0.1", 1)}, status=200)


def paths(file: Path) -> list[str]:
    """Of the requests in file."""
    return [json.loads(line)["path"] for line in file.read_text().splitlines()]


async def test_a_full_file_makes_room_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, old = tmp_path / "access.log", tmp_path / "access.old.log"
    for number in range(5):
        log = AccessLog(file)  # as of a daemon of its own
        log.add(record(f"/{number}"))
        await log.close()
        if number == 1:
            monkeypatch.setattr(access_log, "MAX_BYTES", file.stat().st_size)
    assert (paths(file), paths(old)) == (["/4"], ["/2", "/3"])
    assert file.stat().st_mode & 0o777 == 0o600


async def test_lines_are_written_while_requests_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_log, "_WRITE_EVERY_S", 0.001)
    log, written = AccessLog(tmp_path / "access.log"), asyncio.Event()
    append, loop = log._append, asyncio.get_running_loop()

    def appended(data: bytes) -> None:
        append(data)
        loop.call_soon_threadsafe(written.set)

    monkeypatch.setattr(AccessLog, "_append", lambda self, data: appended(data))
    for number in range(3):
        log.add(record(f"/{number}"))
        await asyncio.wait_for(written.wait(), 10)
        written.clear()
    await log.close()
    assert paths(tmp_path / "access.log") == ["/0", "/1", "/2"]


async def test_what_cannot_be_written_is_told_and_the_rest_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = AccessLog(tmp_path / "folder" / "access.log")
    log.add(record())
    await log.close()
    assert "access.log cannot be written: No such file or directory" in caplog.text
    (tmp_path / "folder").mkdir()
    log.add(record("/later"))
    await log.close()
    assert paths(tmp_path / "folder" / "access.log") == ["/later"]


async def test_a_disk_that_hangs_delays_no_request_and_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hangs, goes_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    append = AccessLog._append

    def hang(self: AccessLog, data: bytes) -> None:
        loop.call_soon_threadsafe(hangs.set)
        assert goes_on.wait(60)
        append(self, data)

    monkeypatch.setattr(AccessLog, "_append", hang)
    monkeypatch.setattr(access_log, "_WRITE_EVERY_S", 0.0)
    monkeypatch.setattr(access_log, "MAX_WAITING", 10)
    log = AccessLog(tmp_path / "access.log")
    log.add(record("/first"))
    await asyncio.wait_for(hangs.wait(), 10)
    for _ in range(25):
        log.add(record())
    goes_on.set()
    with caplog.at_level(logging.ERROR):
        await log.close()
    assert paths(tmp_path / "access.log") == ["/first", *["/x"] * 10]
    assert "15 requests are not in it: the disk was too slow" in caplog.text
