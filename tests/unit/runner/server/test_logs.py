"""Both forms of the log: one record, one line."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

import pytest

from runner.server.logs import JsonFormatter, LineFormatter, destination


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
