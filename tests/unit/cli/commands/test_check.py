"""hearth check."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.main import execute


def check(folder: Path, content: bytes, *options: str) -> int:
    file = folder / "Modelfile"
    file.write_bytes(content)
    return execute(["check", str(file), *options])


def test_the_commands_have_the_names_that_ollama_gives_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = b'FROM x\nPARAMETER top_k 5\nMESSAGE user hi\nSYSTEM """\na"""\n'
    assert check(tmp_path, text, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "commands": [
            {"name": "model", "args": "x"},
            {"name": "top_k", "args": "5"},
            {"name": "message", "args": "user: hi"},
            {"name": "system", "args": "\na"},
        ]
    }


@pytest.mark.parametrize(
    ("content", "error", "line", "column"),
    [
        (b"FROM x\n  SYSTM hi\n", "did you mean", 2, 3),
        (b"SYSTEM hi", "no FROM line", 1, 1),
        (b"FROM x\nSYSTEM \xe9", "is not UTF-8 text", 2, 8),
        (b'FROM x\nSYSTEM """a', "is not closed", 2, 1),
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
    assert check(tmp_path, content, "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert error in answer["error"]
    assert (answer["line"], answer["column"]) == (line, column)


def test_for_people_the_place_is_pointed_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path, b"FROM x\n\tSYSTM \x1bhi\n") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("   SYSTM ?hi\n   ^\n")


def test_what_create_would_refuse_or_ignore_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = b"FROM x\nPARAMETER temprature 1\nPARAMETER top_k many\nPARAMETER low_vram 1\n"
    assert check(tmp_path, text) == 0
    out, err = capsys.readouterr()
    assert out.endswith("4 commands, no errors\n")
    warnings = err.splitlines()
    assert [part.split(": ")[1] for part in warnings] == [f"line {n}, column 1" for n in (2, 3, 4)]
    assert "did you mean temperature?" in warnings[0]


def test_templates_and_names_that_create_would_refuse_are_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bomb = b"TEMPLATE {{ range 999999999 }}x{{ end }}"
    text = b"FROM x\nRENDERER qwen3-codr\n" + bomb + b"\nTEMPLATE {{ if }}\n"
    assert check(tmp_path, text) == 0
    warnings = capsys.readouterr().err.splitlines()
    assert [part.split(": ")[1] for part in warnings] == [f"line {n}, column 1" for n in (2, 3, 4)]
    assert "did you mean qwen3-coder" in warnings[0]
    assert "a short question alone takes that much" in warnings[1]
    assert "missing value for if" in warnings[2]


def test_standard_input_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"FROM x")))
    assert execute(["check", "-"]) == 0
    assert capsys.readouterr().out == "-: 1 command, no errors\n"


def test_a_file_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["check", "nowhere"]) == 1
    assert "nowhere does not exist" in capsys.readouterr().err
