"""Messages from terminals that can only be written to."""

from __future__ import annotations

import io

import pytest

from cli.line_keyboard import LineKeyboard


def test_messages_are_lines_or_stand_in_quotes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('hello\n"""one\ntwo"""\n'))
    keyboard = LineKeyboard()
    with keyboard.open():
        assert [keyboard.ask(), keyboard.ask()] == ["hello", '"""one\ntwo"""']
        with pytest.raises(EOFError):
            keyboard.ask()
    assert capsys.readouterr().out == ">>> >>> ... >>> \n"
