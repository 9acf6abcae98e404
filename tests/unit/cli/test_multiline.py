"""Messages of several lines."""

from __future__ import annotations

import pytest

from cli.multiline import is_open, read_message, unquoted


def read(*lines: str) -> tuple[str, list[bool]]:
    """The message that these lines make, and which of them were continuations."""
    rest = iter(lines)
    asked: list[bool] = []

    def ask(continued: bool) -> str:
        asked.append(continued)
        return next(rest)

    return read_message(ask), asked


def test_a_line_without_quotes_is_the_message() -> None:
    assert read("hello") == ("hello", [False])


def test_quotes_on_one_line_are_taken_off() -> None:
    assert read('"""hello"""') == ("hello", [False])


def test_lines_are_read_up_to_the_closing_quotes() -> None:
    assert read('"""one', "", "two", 'three"""') == ("one\n\ntwo\nthree", [False, True, True, True])


def test_quotes_on_lines_of_their_own_add_no_empty_lines() -> None:
    assert read('"""', "one", '"""') == ("one", [False, True, True])


def test_a_system_message_may_have_several_lines() -> None:
    text, _ = read('/set system """You are', 'brief."""')
    assert text == "/set system You are\nbrief."


@pytest.mark.parametrize("text", ['say """hi', '/show """', '/set parameter stop """'])
def test_quotes_in_the_middle_open_nothing(text: str) -> None:
    assert not is_open(text)
    assert unquoted(text) == text


def test_the_end_of_input_inside_quotes_passes_through() -> None:
    def ask(continued: bool) -> str:
        if continued:
            raise EOFError
        return '"""one'

    with pytest.raises(EOFError):
        read_message(ask)
