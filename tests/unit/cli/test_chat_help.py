"""The help of the chat on terminals of any width."""

from __future__ import annotations

import re

import pytest

from cli.chat_help import TOPICS, help_text

WIDTHS = (20, 40, 80, 120)


def words(text: str) -> list[str]:
    return sorted(re.findall(r"\S+", text))


@pytest.mark.parametrize("topic", ["", *TOPICS])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(topic: str) -> None:
    whole = help_text(topic, 1000)
    for width in WIDTHS:
        text = help_text(topic, width)
        assert words(text) == words(whole)
        assert all(len(line) <= width or " " not in line.strip() for line in text.splitlines())


@pytest.mark.parametrize("width", [80, 120])
def test_a_command_and_its_meaning_share_a_line_where_there_is_room(width: int) -> None:
    assert "  /set parameter NAME VALUE  Set a parameter" in help_text("set", width)


def test_on_a_narrow_terminal_the_meaning_stands_below() -> None:
    lines = help_text("set", 30).splitlines()
    assert lines[1:3] == ["  /set parameter NAME VALUE", "      Set a parameter, such as"]
