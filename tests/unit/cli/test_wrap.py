"""Streamed text on a terminal."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.wrap import PlainWriter, WrappingWriter, cell_width, visible
from tests.properties import examples

TEXTS = st.text(alphabet="ab é漢\n\t", max_size=120)


def shown(text: str) -> list[str]:
    """The lines of a terminal that received text, with the cursor at the end of them."""
    lines = [""]
    for part in re.findall(r"\x1b\[\d+D\x1b\[K|.|\n", text, re.DOTALL):
        if part == "\n":
            lines.append("")
        elif part.startswith("\x1b"):
            cells = int(part[2 : part.index("D")])
            while cells > 0:
                cells -= cell_width(lines[-1][-1])
                lines[-1] = lines[-1][:-1]
        else:
            lines[-1] += part
    return lines


def wrapped(pieces: list[str], width: int) -> list[str]:
    out = io.StringIO()
    writer = WrappingWriter(out, width)
    for piece in pieces:
        writer.write(piece)
    return shown(out.getvalue())


def test_a_word_that_does_not_fit_moves_to_the_next_line() -> None:
    assert wrapped(["one two thr", "ee four"], 12) == ["one two ", "three four"]


def test_a_word_longer_than_the_line_is_cut() -> None:
    assert wrapped(["x" * 25], 10) == ["x" * 10, "x" * 10, "x" * 5]


def test_line_ends_of_the_model_are_kept() -> None:
    assert wrapped(["a\n\n  b"], 40) == ["a", "", "  b"]


@examples(50)
@given(TEXTS, st.integers(10, 30), st.integers(1, 7))
def test_no_line_is_wider_than_asked_and_no_word_is_lost(text: str, width: int, cut: int) -> None:
    pieces = [text[i : i + cut] for i in range(0, len(text), cut)]
    lines = wrapped(pieces, width)
    assert all(cell_width(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert lines == wrapped([text], width)


@examples(40)
@given(st.text())
def test_plain_text_passes_unchanged(text: str) -> None:
    out = io.StringIO(newline="")
    PlainWriter(out).write(text)
    assert out.getvalue() == text


@pytest.mark.parametrize("char", ["\x1b", "\x07", "\r", "\x9b", "\x00", "\x7f"])
def test_control_characters_of_a_model_do_not_reach_the_terminal(char: str) -> None:
    assert char not in visible(f"a{char}b")
    assert visible("a\tb\nc") == "a\tb\nc"


def test_a_line_may_end_between_wide_characters() -> None:
    assert wrapped(["ab 漢字漢字漢字"], 10) == ["ab 漢字漢", "字漢字"]


@pytest.mark.parametrize(
    ("text", "cells"),
    [("漢", 2), ("e\u0301", 1), ("ที่", 1), ("❤\ufe0f", 1), ("a\u200db", 2), ("\U0001f600", 2)],
)
def test_marks_and_joiners_take_no_cell(text: str, cells: int) -> None:
    assert cell_width(text) == cells
