"""hearth check."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.main import execute
from tests.unit.cli.conftest import FakeDaemon

WEIGHTS = b"GGUF" + bytes(60)


@pytest.fixture(autouse=True)
def no_daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No daemon answers, unless a test has one."""
    monkeypatch.setenv("HEARTH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HEARTH_HOST", "127.0.0.1:1")


def check(folder: Path, content: bytes, *options: str) -> int:
    file = folder / "Modelfile"
    file.write_bytes(content)
    return execute(["check", str(file), *options])


def test_the_commands_have_the_names_that_ollama_gives_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = b'FROM x\nPARAMETER top_k 5\nMESSAGE user hi\nSYSTEM """\na"""\n'
    assert check(tmp_path, text, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["errors"] == []
    assert answer["commands"] == [
        {"name": "model", "args": "x"},
        {"name": "top_k", "args": "5"},
        {"name": "message", "args": "user: hi"},
        {"name": "system", "args": "\na"},
    ]


@pytest.mark.parametrize(
    ("content", "error", "line", "column"),
    [
        (b"FROM x\n  SYSTM hi\n", "did you mean", 2, 3),
        (b"SYSTEM hi", "no FROM line", 1, 1),
        (b"FROM x\nSYSTEM \xe9", "is not UTF-8 text", 2, 8),
        (b'FROM x\nSYSTEM """a', "is not closed", 2, 1),
        (b"FROM x\nFROM y\n", "FROM names two models (x, y)", 2, 1),
        (b"FROM ./w.gguf\nFROM ./w.gguf\nFROM ./w.gguf", "at most two FROM", 3, 1),
        (b"FROM x\nREQUIRES soon", "expected a version", 2, 1),
        (b"FROM x\nREQUIRES 99.0", "newer than Ollama 0.32", 2, 1),
        (b"FROM x\nTEMPLATE {{ if }}", "missing value for if", 2, 1),
        (b"FROM x\nTEMPLATE {{ range 999999999 }}x{{ end }}", "even a short question", 2, 1),
    ],
)
def test_an_error_has_its_place_and_exit_code_1(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: bytes,
    error: str,
    line: int,
    column: int,
) -> None:
    (tmp_path / "w.gguf").write_bytes(WEIGHTS)
    assert check(tmp_path, content, "--json") == 1
    (found,) = json.loads(capsys.readouterr().out)["errors"]
    assert error in found["error"]
    assert (found["line"], found["column"]) == (line, column)


def test_for_people_the_place_is_pointed_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path, b"FROM x\n\tSYSTM \x1bhi\n") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "   SYSTM ?hi\n   ^\n" in err
    assert err.endswith("Modelfile: 1 error\n")


def test_all_that_create_would_refuse_is_found_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = {
        "FROM ./missing.gguf": "missing.gguf, named by FROM, does not exist",
        'SYSTM """two\nlines"""': "did you mean",
        "PARAMETER temprature 1": "did you mean temperature?",
        "PARAMETER top_k many": "expected a whole number from 0",
        "MESSAGE wizard hi": "the role of a message must be one of",
        "RENDERER qwen3-codr": "did you mean qwen3-coder",
        "TEMPLATE {% if %}": "the template, line 1",
        "ADAPTER ./lora": "lora, named by ADAPTER, does not exist",
        "DRAFT ./small.gguf": "small.gguf, named by DRAFT, does not exist",
        "REQUIRES 0.33": "newer than Ollama 0.32",
    }
    assert check(tmp_path, "\n".join(lines).encode(), "--json") == 1
    errors = json.loads(capsys.readouterr().out)["errors"]
    assert [error["line"] for error in errors] == [1, 2, *range(4, 12)]
    for error, expected in zip(errors, lines.values(), strict=True):
        assert expected in error["error"]


def test_what_create_would_ignore_or_pull_is_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path, b"FROM x\nPARAMETER low_vram 1\n") == 0
    out, err = capsys.readouterr()
    assert out.endswith("Modelfile: 2 commands, no errors\n")
    assert "not checked whether x is installed: no hearth daemon answers" in err
    assert "line 2, column 1: parameter low_vram is deprecated and has no effect" in err


def test_a_daemon_that_runs_is_asked_for_the_model(
    tmp_path: Path, daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.reply("POST", "/api/show", {"error": "no", "code": "model_not_found"}, 404)
    assert check(tmp_path, b"FROM x\n") == 0
    assert "x is not installed; hearth create pulls it first" in capsys.readouterr().err
    daemon.reply("POST", "/api/show", {"renderer": "glimmer-9", "parser": ""})
    assert check(tmp_path, b"FROM x\nRENDERER glimmer-9\n") == 0
    assert capsys.readouterr().err == ""


def test_the_files_that_a_modelfile_names_are_looked_for_beside_it(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(WEIGHTS)
    assert check(tmp_path, b"FROM ./model.gguf") == 0
    assert check(tmp_path, b"FROM .") == 0
    (tmp_path / "model.gguf").write_bytes(b"something else")
    assert check(tmp_path, b"FROM ./model.gguf") == 1


def test_standard_input_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"FROM x")))
    assert execute(["check", "-"]) == 0
    assert capsys.readouterr().out == "-: 1 command, no errors\n"


def test_a_file_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["check", "nowhere"]) == 1
    assert "nowhere does not exist" in capsys.readouterr().err
