"""Texts inside the arguments of a function: read as they arrive, and held to a grammar."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from runner.chat.tools.free_text import (
    TextReader,
    arguments_of_text,
    checked_lark,
    lark_of_regex,
    text_of_arguments,
)
from runner.errors import InvalidRequest
from tests.properties import examples

BYTES = LLTokenizer("byte")


def accepts(lark: str, text: str) -> bool:
    """Whether the JSON string of text, without its quotes, is one of the grammar."""
    whole = f"start: inner\ninner: %lark {{\n{lark}\n}}"
    matcher = LLMatcher(BYTES, LLMatcher.grammar_from_lark(whole))
    assert not matcher.is_error(), matcher.get_error()
    tokens = BYTES.tokenize_str(json.dumps(text, ensure_ascii=False)[1:-1])
    return matcher.validate_tokens(tokens) == len(tokens) and (
        matcher.consume_tokens(tokens) and matcher.is_accepting()
    )


@examples(40)
@given(st.text(max_size=20) | st.text('"\\\n\x01é😀}', max_size=8), st.integers(0, 60))
def test_a_text_in_pieces_is_the_text(text: str, cut: int) -> None:
    arguments = arguments_of_text(text)
    for pieces in (list(arguments), [arguments[:cut], arguments[cut:]]):
        reader = TextReader()
        assert "".join(map(reader.feed, pieces)) + reader.feed("", last=True) == text
    assert text_of_arguments(arguments) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"x": 1}', '{"x": 1}'),
        ('{"x": 1, "input": "a"}', "a"),
        ('{"input": 5}', '{"input": 5}'),
        ('{"input": "cut \\u00', "cut "),
        ('{"inp', '{"inp'),
        ("{}", "{}"),
    ],
)
def test_arguments_of_another_shape_are_the_text(arguments: str, text: str) -> None:
    assert text_of_arguments(arguments) == text
    reader = TextReader()
    assert "".join(map(reader.feed, arguments)) + reader.feed("", last=True) == text


PATCH = (
    'start: "*** Begin" LF line+\nline: ("+" | "-") /[^\\n]*/ LF // a comment\n%import common.LF\n'
)


@pytest.mark.parametrize(
    ("lark", "text", "matches"),
    [
        (checked_lark('start: "say \\"" WORD "\\""\nWORD: /[a-z]+/'), 'say "hi"', True),
        (checked_lark('start: "say \\"" WORD "\\""\nWORD: /[a-z]+/'), "say hi", False),
        (checked_lark(PATCH), "*** Begin\n+one\n-two\n", True),
        (checked_lark(PATCH), "*** Begin\n one\n", False),
        (checked_lark("start: /.*/"), "one line", True),
        (checked_lark("start: /.*/"), "two\nlines", False),
        (checked_lark("start: /.*\\n.*/"), "two\nlines", True),
        (checked_lark("start: /.*\\n.*/"), "th\nr\nee", False),
        (checked_lark("start: /[^x]*\\n\\S+/"), "ab\ncd", True),
        (lark_of_regex(r"[a-z]+/\d\n"), "ab/1\n", True),
        (lark_of_regex(r"[a-z]+/\d\n"), "ab/x\n", False),
        (lark_of_regex("(.|\\n)*"), "any\ntext", True),
    ],
)
def test_a_grammar_of_the_text_becomes_one_of_its_json(lark: str, text: str, matches: bool) -> None:
    assert accepts(lark, text) is matches


def test_a_text_that_is_not_written_as_json_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="not written as JSON"):
        checked_lark('start: "\\q"')
