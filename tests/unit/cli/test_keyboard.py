"""Completion of what is typed, and the history file."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from cli.keyboard import CommandCompleter, Keyboard


def completions(line: str) -> list[str]:
    document = Document(line, len(line))
    found = CommandCompleter().get_completions(document, CompleteEvent())
    return [line[: len(line) + item.start_position] + item.text for item in found]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/cl", ["/clear"]),
        ("/set ver", ["/set verbose"]),
        ("/set parameter temp", ["/set parameter temperature"]),
        ("/set format ", ["/set format json"]),
        ("/show mod", ["/show modelfile"]),
        ("/help sho", ["/help show", "/help shortcuts"]),
        ("hello", []),
        ("/clear x", []),
        ("/set system a", []),
    ],
)
def test_commands_and_their_words_are_completed(line: str, expected: list[str]) -> None:
    assert completions(line) == expected


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    """What will be typed."""
    with create_pipe_input() as typed, create_app_session(input=typed, output=DummyOutput()):
        yield typed


def test_a_line_is_read_and_kept_in_a_private_file(keys: PipeInput, tmp_path: Path) -> None:
    file = tmp_path / "state" / "history"
    keys.send_text("hello\r")
    assert Keyboard(file).ask(False) == "hello"
    assert "+hello" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_without_history_nothing_is_written(keys: PipeInput, tmp_path: Path) -> None:
    file = tmp_path / "history"
    keyboard = Keyboard(file)
    keyboard.set_history(False)
    keys.send_text("secret\r")
    assert keyboard.ask(False) == "secret"
    assert "secret" not in file.read_text()


def test_alt_enter_and_pasted_lines_stay_one_message(keys: PipeInput) -> None:
    keys.send_text("one\x1b\rtwo\x1b[200~\nthree\nfour\x1b[201~\r")
    assert Keyboard(None).ask(False) == "one\ntwo\nthree\nfour"


def test_a_line_typed_ahead_ends_with_a_line_feed(keys: PipeInput) -> None:
    keys.send_text("early\n")
    assert Keyboard(None).ask(False) == "early"


@pytest.mark.parametrize(("typed", "empty"), [("\x03", True), ("abc\x03", False)])
def test_ctrl_c_tells_whether_the_line_was_empty(keys: PipeInput, typed: str, empty: bool) -> None:
    keyboard = Keyboard(None)
    keys.send_text(typed)
    with pytest.raises(KeyboardInterrupt):
        keyboard.ask(False)
    assert keyboard.was_empty is empty


def test_ctrl_d_on_an_empty_line_is_the_end(keys: PipeInput) -> None:
    keys.send_text("\x04")
    with pytest.raises(EOFError):
        Keyboard(None).ask(False)
