"""What keys do, completion of what is typed, and the history file."""

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
from tests.unit.cli.conftest import FakeDaemon


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
        ("/set think h", ["/set think high"]),
        ("/show mod", ["/show modelfile"]),
        ("/help sho", ["/help show", "/help shortcuts"]),
        ("hello", []),
        ("/clear x", []),
        ("/set system a", []),
    ],
)
def test_commands_and_their_words_are_completed(line: str, expected: list[str]) -> None:
    assert completions(line) == expected


def test_the_models_that_can_be_loaded_are_completed(daemon: FakeDaemon) -> None:
    daemon.reply("GET", "/api/tags", {"models": [{"name": "ember:latest"}, {"name": "smol:2"}]})
    assert completions("/load sm") == ["/load smol:2"]


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    """What will be typed."""
    with create_pipe_input() as typed, create_app_session(input=typed, output=DummyOutput()):
        yield typed


def test_a_line_is_read_and_kept_in_a_private_file(keys: PipeInput, tmp_path: Path) -> None:
    file = tmp_path / "state" / "history"
    keys.send_text("hello\r")
    assert Keyboard(file).ask() == "hello"
    assert "+hello" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_without_history_nothing_is_written(keys: PipeInput, tmp_path: Path) -> None:
    file = tmp_path / "history"
    keyboard = Keyboard(file)
    keyboard.set_history(False)
    keys.send_text("secret\r")
    assert keyboard.ask() == "secret"
    assert "secret" not in file.read_text()


def test_a_message_in_quotes_is_one_entry_of_the_history(keys: PipeInput, tmp_path: Path) -> None:
    keyboard = Keyboard(tmp_path / "history")
    keys.send_text('"""one\rtwo\rthree"""\r')
    assert keyboard.ask() == '"""one\ntwo\nthree"""'
    keys.send_text("\x1b[A\r")
    assert keyboard.ask() == '"""one\ntwo\nthree"""'


def test_new_lines_and_pasted_lines_stay_one_message(keys: PipeInput) -> None:
    keys.send_text("one\x1b\rtwo\nthree\x1b[200~\nfour\nfive\x1b[201~\r")
    assert Keyboard(None).ask() == "one\ntwo\nthree\nfour\nfive"


def test_up_leads_to_the_last_message_whatever_was_typed(keys: PipeInput) -> None:
    keyboard = Keyboard(None)
    keys.send_text("first\r")
    keyboard.ask()
    keys.send_text("x\x1b[A\r")
    assert keyboard.ask() == "first"


def test_tab_outside_of_commands_is_a_tab(keys: PipeInput) -> None:
    keys.send_text("a\tb\r")
    assert Keyboard(None).ask() == "a\tb"


def test_bytes_of_another_encoding_do_not_end_the_chat(keys: PipeInput) -> None:
    keys.send_bytes(b"caf\xe9\r")
    assert Keyboard(None).ask() == "caf�"


@pytest.mark.parametrize(("typed", "empty"), [("\x03", True), ("abc\x03", False)])
def test_ctrl_c_tells_whether_the_line_was_empty(keys: PipeInput, typed: str, empty: bool) -> None:
    keyboard = Keyboard(None)
    keys.send_text(typed)
    with pytest.raises(KeyboardInterrupt):
        keyboard.ask()
    assert keyboard.was_empty is empty


def test_ctrl_c_in_a_search_ends_the_search_only(keys: PipeInput) -> None:
    keys.send_text("\x12abc\x03hello\r")
    assert Keyboard(None).ask() == "hello"


def test_ctrl_d_on_an_empty_line_is_the_end(keys: PipeInput) -> None:
    keys.send_text("\x04")
    with pytest.raises(EOFError):
        Keyboard(None).ask()


@pytest.mark.parametrize(
    ("typed", "then", "messages"),
    [
        ("next\r", "", ["next"]),
        ("one\rtwo\rthree\r", "!\r", ["one\ntwo\nthree!"]),
        ("\x1b[200~one\ntwo\x1b[201~", "\r", ["one\ntwo"]),
        ("\r\r", "x\r", ["x"]),
        ("ab\x7fc", "\r", ["ac"]),
    ],
)
def test_what_is_typed_during_an_answer_is_one_input(
    keys: PipeInput, typed: str, then: str, messages: list[str]
) -> None:
    keyboard = Keyboard(None)
    with keyboard.answering():
        keys.send_text(typed)
    keys.send_text(then)
    assert [keyboard.ask() for _ in messages] == messages


def test_lines_after_a_sent_one_wait_for_the_end_of_its_answer(keys: PipeInput) -> None:
    keyboard = Keyboard(None)
    keys.send_text("question\rmore\rand more\r")  # a paste of a terminal that does not mark it
    assert keyboard.ask() == "question"
    with keyboard.answering():
        pass
    keys.send_text("\r")
    assert keyboard.ask() == "more\nand more"
