"""Text in the notations of others."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfile.templates.gotemplate.escapes import can_backquote, html, json_text, quote, script
from modelfile.templates.gotemplate.literals import unquote


@given(st.text(), st.booleans())
def test_what_is_quoted_is_read_back(text: str, ascii_only: bool) -> None:
    text = text.encode("utf-8", "replace").decode()
    quoted = quote(text, ascii_only=ascii_only)
    assert unquote(quoted) == text
    assert quoted.isascii() or not ascii_only


@given(st.text())
def test_json_reads_back(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert json.loads(json_text(text)) == text


@pytest.mark.parametrize(
    ("text", "mark", "ascii_only", "expected"),
    [
        ("a\\b\"c'", '"', False, '"a\\\\b\\"c\'"'),
        ("é\n\t\x00\x7f", '"', False, '"é\\n\\t\\x00\\x7f"'),
        ("é\U0001f600", '"', True, '"\\u00e9\\U0001f600"'),
        ("'", "'", False, "'\\''"),
        ("\udcff", '"', False, '"\\xff"'),
        ("\u2028\u00a0", '"', False, '"\\u2028\\u00a0"'),
    ],
)
def test_quotes_are_those_of_go(text: str, mark: str, ascii_only: bool, expected: str) -> None:
    assert quote(text, mark, ascii_only) == expected


def test_markup_is_escaped() -> None:
    assert html("<a href='x'>&\"\0") == "&lt;a href=&#39;x&#39;&gt;&amp;&#34;\ufffd"
    assert script("<'\"\\=&>\n\u2028é") == "\\u003C\\'\\\"\\\\\\u003D\\u0026\\u003E\\u000A\\u2028é"


def test_only_plain_text_goes_between_backquotes() -> None:
    assert can_backquote('a "b" \\ \t é')
    assert not any(map(can_backquote, ("`", "a\nb", "\x7f", "\ufeff", "\udc80")))
