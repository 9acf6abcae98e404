"""Errors as messages and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.errors import CliError, explain, report
from runner.client import ClientError, DaemonUnreachable
from runner.settings import SettingsError


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (CliError("x"), 1),
        (CliError("x", 2), 2),
        (SettingsError("HEARTH_HOST='x' cannot be used"), 1),
        (ClientError("x", status=500), 1),
        (ClientError("x", status=404, code="model_not_found"), 3),
        (DaemonUnreachable("x"), 1),
        (PermissionError(13, "Permission denied", "f"), 1),
        (ZeroDivisionError("x"), 1),
    ],
)
def test_every_error_has_an_exit_code(error: Exception, exit_code: int) -> None:
    assert explain(error)[1] == exit_code


def test_an_unknown_model_is_explained_with_near_names_and_what_to_do() -> None:
    error = ClientError(
        "model 'embr' is not installed", code="model_not_found", details={"suggestions": ["ember"]}
    )
    assert explain(error)[0] == (
        "model 'embr' is not installed. Did you mean ember? "
        "`hearth list` shows the installed models"
    )


def test_near_names_that_the_daemon_told_are_not_repeated() -> None:
    message = "model 'embr' is not installed. Did you mean ember?"
    error = ClientError(message, code="model_not_found", details={"suggestions": ["ember"]})
    assert explain(error)[0].count("ember?") == 1


def test_a_system_error_names_the_file() -> None:
    assert explain(PermissionError(13, "Permission denied", "/x"))[0] == "/x: Permission denied"


def test_a_fault_of_the_store_names_its_folder_where_it_is_this_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEARTH_HOME", str(tmp_path))
    monkeypatch.setenv("HEARTH_HOST", "127.0.0.1:1")
    full = ClientError("no space.", code="storage_failed", details={"errno": "ENOSPC"})
    assert explain(full) == ("no space.", 1)
    (tmp_path / "state").mkdir()
    facts = {"url": "http://127.0.0.1:1", "models": "/data/models"}
    (tmp_path / "state" / "daemon.json").write_text(json.dumps(facts))
    assert explain(full) == ("no space. The models are in /data/models", 1)
    assert explain(ClientError("no.", code="storage_failed")) == ("no.", 1)


def test_an_unforeseen_error_is_one_line_without_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report(ZeroDivisionError("division by zero")) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("Error: internal error (ZeroDivisionError")
    assert shown.err.count("\n") == 1


def test_debug_shows_the_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEARTH_LOG_LEVEL", "debug")
    try:
        raise ZeroDivisionError("x")
    except ZeroDivisionError as error:
        report(error)
    assert "Traceback" in capsys.readouterr().err
