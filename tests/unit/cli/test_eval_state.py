"""What hearth eval keeps of an interruption, and what of it is not believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.eval_state import EvalState

STATE = {"digest": "sha256:ab", "chunks": 3, "total": 1234.5, "squares": 5678.25}


def state_of(folder: Path, content: str = "text", context: int | None = None) -> EvalState:
    return EvalState(folder / "eval", "model", folder / "text.txt", content, context)


def test_what_is_saved_comes_back_until_it_is_removed(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    assert state.load() is None
    state.save({**STATE, "more": "from a newer daemon"})
    assert state_of(tmp_path).load() == STATE
    assert state_of(tmp_path, context=64).load() is None
    assert state.file.stat().st_mode & 0o777 == 0o600
    assert [*state.file.parent.iterdir()] == [state.file]
    state.remove()
    state.remove()
    assert state.load() is None


def test_the_state_of_another_text_is_told_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state_of(tmp_path).save(STATE)
    assert state_of(tmp_path, "another text").load() is None
    assert "is from another text or version of hearth: starting again" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"chunks": -1},
        {"chunks": "many"},
        {"total": float("nan")},
        {"squares": float("inf")},
        {"squares": -1.0},
        {"total": None},
    ],
)
def test_a_damaged_state_is_told_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any]
) -> None:
    state = state_of(tmp_path)
    state.save({**STATE, **change})
    assert state.load() is None
    assert f"{state.file} is damaged: starting again" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"7", b'{"origin":', b"[" * 9000])
def test_what_is_no_state_is_told_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    state = state_of(tmp_path)
    state.save(STATE)
    whole = json.loads(state.file.read_text())
    state.file.write_bytes(content)
    assert state.load() is None
    del whole["state"]["total"]
    state.file.write_text(json.dumps(whole))
    assert state.load() is None
    assert capsys.readouterr().err.count("is damaged: starting again") == 2


def test_a_folder_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "eval").write_text("a file")
    state = state_of(tmp_path)
    state.save(STATE)
    assert state.load() is None
    state.remove()
