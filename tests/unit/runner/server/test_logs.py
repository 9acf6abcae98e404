"""Both forms of the log: one record, one line."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from pathlib import Path

import pytest

from runner.server.logs import (
    KEPT_ENTRIES,
    MAX_REPEATED,
    REPEAT_S,
    JsonFormatter,
    LineFormatter,
    OncePerInterval,
    RecentLog,
    destination,
)


def record(message: str, *args: object, fault: bool = False) -> logging.LogRecord:
    info = None
    if fault:
        try:
            raise KeyError("x")
        except KeyError:
            info = sys.exc_info()
    return logging.LogRecord("hearth", logging.INFO, "f.py", 1, message, args, info)


def test_json_has_one_object_a_line_whatever_the_message_holds() -> None:
    line = JsonFormatter().format(record("loaded %s", 'a"\n{"b": 1}'))
    assert "\n" not in line
    told = json.loads(line)
    assert (told["level"], told["logger"]) == ("info", "hearth")
    assert told["message"] == 'loaded a"\n{"b": 1}'
    assert told["time"].endswith("+00:00")


def test_json_holds_the_traceback_of_a_fault() -> None:
    line = JsonFormatter().format(record("failed", fault=True))
    assert "\n" not in line
    assert "KeyError" in json.loads(line)["traceback"]


def test_text_escapes_what_could_forge_a_line() -> None:
    assert "\x1b" not in LineFormatter().format(record("model \x1b[31m"))


def test_where_the_log_goes_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = os.fstat(2)
    assert destination(tmp_path / "no-such") is None
    monkeypatch.setenv("JOURNAL_STREAM", f"{stderr.st_dev}:{stderr.st_ino}")
    assert destination(tmp_path / "no-such") == "journal"
    monkeypatch.setenv("JOURNAL_STREAM", "1:2")
    assert destination(tmp_path / "no-such") is None


def test_a_warning_that_repeats_is_written_once_in_an_interval_and_then_counted() -> None:
    now, written = [0.0], io.StringIO()
    handler = OncePerInterval(written, lambda: now[0])
    log = logging.Logger("net")
    log.addHandler(handler)
    for number in range(1000):
        log.error("no descriptors for %s", "10.0.0.1")
        log.info("request %d", number)
    log.error("no descriptors for %s", "10.0.0.2")
    lines = written.getvalue().splitlines()
    assert lines.count("no descriptors for 10.0.0.1") == 1
    assert lines[-1] == "no descriptors for 10.0.0.2"
    assert len(lines) == 1002  # what is no warning is not held back
    now[0] = REPEAT_S
    log.info("later")
    assert written.getvalue().splitlines()[1002:] == [
        "no descriptors for 10.0.0.1 (999 times more in 60 s)",
        "later",
    ]


def test_the_repeated_messages_that_are_remembered_are_bounded() -> None:
    handler = OncePerInterval(io.StringIO(), lambda: 0.0)
    log = logging.Logger("net")
    log.addHandler(handler)
    for number in range(10 * MAX_REPEATED):
        log.error("fault %d", number)
    assert len(handler._written) == MAX_REPEATED


def test_recent_warnings_outlive_what_came_after_them() -> None:
    kept = RecentLog()
    kept.emit(logging.LogRecord("hearth", logging.ERROR, "", 0, "it %s", ("broke",), None))
    for _ in range(KEPT_ENTRIES):
        kept.emit(logging.LogRecord("hearth", logging.INFO, "", 0, "fine", (), None))
    assert [each.message for each in kept.entries(logging.WARNING, 0, 10)] == ["it broke"]
    everything = kept.entries(logging.DEBUG, 0, 2 * KEPT_ENTRIES)
    assert [each.number for each in everything] == list(range(2, KEPT_ENTRIES + 2))
    assert [each.number for each in kept.entries(0, KEPT_ENTRIES - 1, 1)] == [KEPT_ENTRIES + 1]


def test_a_traceback_stays_in_the_log() -> None:
    kept = RecentLog()
    try:
        raise ValueError("secret-canary")
    except ValueError:
        kept.emit(logging.LogRecord("hearth", logging.ERROR, "", 0, "failed", (), sys.exc_info()))
    [entry] = kept.entries(logging.ERROR, 0, 10)
    assert entry.message == "failed (ValueError; the log has its traceback)"
