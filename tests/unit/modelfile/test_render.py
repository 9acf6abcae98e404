"""Rendering: what is written parses to the same commands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfile.ast import INSTRUCTIONS, ROLES, Command, Modelfile
from modelfile.errors import ParseError, RenderError
from modelfile.parser import parse
from modelfile.render import render
from tests.properties import examples

VALUES = st.text(alphabet=' \t\n\r"#aB:👋', max_size=12) | st.text(max_size=20)


def _command(instruction: str) -> st.SearchStrategy[Command]:
    words: st.SearchStrategy[str | None] = st.none()
    if instruction == "message":
        words = st.sampled_from(ROLES)
    elif instruction == "parameter":
        words = st.sampled_from(("stop", "top_k", "Q1"))
    return st.builds(Command, st.just(instruction), VALUES, words)


@examples(130)
@given(st.lists(st.sampled_from(INSTRUCTIONS).flatmap(_command), max_size=5))
def test_a_rendered_modelfile_parses_to_itself(commands: list[Command]) -> None:
    modelfile = Modelfile((Command("from", "x"), *commands))
    try:
        text = render(modelfile)
    except RenderError:
        return
    assert parse(text) == modelfile


@examples(100)
@given(st.text(alphabet=' \t\r\n"#abSYTEM👋', max_size=60))
def test_whatever_parses_can_be_rendered(text: str) -> None:
    try:
        modelfile = parse(f'FROM x\nSYSTEM "{text}')
    except ParseError:
        return
    assert parse(render(modelfile)) == modelfile


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        (" spaced ", '" spaced "'),
        ("a\nb", '"a\nb"'),
        ('a "b"\nc', '"""a "b"\nc"""'),
        ('"begins with a quote', '""""begins with a quote"""'),
        ("", ""),
    ],
)
def test_values_are_quoted_only_where_needed(value: str, written: str) -> None:
    modelfile = Modelfile((Command("from", "x"), Command("system", value)))

    assert render(modelfile) == f"FROM x\nSYSTEM {written}\n"


def test_a_value_that_no_quotes_can_hold_is_refused() -> None:
    impossible = Modelfile((Command("from", "x"), Command("system", 'a"""\nb')))
    with pytest.raises(RenderError, match="the value of SYSTEM has a line that ends with quotes"):
        render(impossible)
