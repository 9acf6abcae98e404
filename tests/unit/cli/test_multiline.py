"""Messages of several lines."""

from __future__ import annotations

import pytest

from cli.multiline import is_open, unquoted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "hello"),
        ('"""hello"""', "hello"),
        ('"""one\n\ntwo\nthree"""', "one\n\ntwo\nthree"),
        ('"""\none\n"""', "one"),
        ('"""def f():\n    """A docstring."""\n    return 1\n""" ',
         'def f():\n    """A docstring."""\n    return 1'),
        ('/set system """You are\nbrief."""', "/set system You are\nbrief."),
    ],
)  # fmt: skip
def test_quotes_around_a_whole_message_are_taken_off(text: str, message: str) -> None:
    assert not is_open(text)
    assert unquoted(text) == message


@pytest.mark.parametrize(
    "text",
    [
        '"""',
        '"""one',
        '"""one """ two',
        '/set system """You are\n',
        '"""def f():\n    """A docstring."""',
        '"""def f():\n    """A docstring\n    """',
    ],
)
def test_a_message_is_open_until_it_ends_with_quotes(text: str) -> None:
    assert is_open(text)


@pytest.mark.parametrize("text", ['say """hi', '/show """', '/set parameter stop """'])
def test_quotes_in_the_middle_open_nothing(text: str) -> None:
    assert not is_open(text)
    assert unquoted(text) == text
