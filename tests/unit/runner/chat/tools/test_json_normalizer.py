"""JSON as it arrives is written as json.dumps would write it once it is whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.chat.tools.json_normalizer import JsonNormalizer
from tests.properties import examples

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6) | st.text('"\\\n\x01😀', max_size=6),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def written(*pieces: str) -> tuple[str, JsonNormalizer]:
    transcriber = JsonNormalizer()
    return "".join(map(transcriber.feed, pieces)), transcriber


@examples(50)
@given(
    st.dictionaries(st.text(max_size=5), VALUES, max_size=4),
    st.booleans(),
    st.sampled_from([None, 0, 2]),
    st.integers(0, 100),
)
def test_an_object_in_pieces_is_what_json_dumps_gives(
    value: dict[str, Any], ascii_only: bool, indent: int | None, cut: int
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    expected = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
    for pieces in ([text], list(text), [text[:cut], text[cut:]]):
        found, transcriber = written(*pieces)
        assert (found, transcriber.done, transcriber.rest) == (expected, True, "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":1,}', '{"a": 1}'),
        ('{"a":[1,2,],}', '{"a": [1, 2]}'),
        ('{"\\u0041\\/":"\\ud83d\\ude00 \\ud83d \\ude00"}', '{"A/": "😀 ? ?"}'),
        ('{"a":1E2, "b":-0, "c":0.10}', '{"a": 100.0, "b": 0, "c": 0.1}'),
        ('{"a":1,"a":2}', '{"a": 1, "a": 2}'),
    ],
)
def test_blanks_escapes_numbers_and_commas_become_usual_ones(text: str, expected: str) -> None:
    assert written(*text)[0] == expected
    assert written(text)[0] == expected


@pytest.mark.parametrize(
    ("text", "before", "unwritten"),
    [
        ("{,}", "{", ",}"),
        ('{"a":1,,}', '{"a": 1', ",,}"),
        ('{"a" 1}', '{"a"', "1}"),
        ("{'a':1}", "{", "'a':1}"),
        ('{"a":True}', '{"a": ', "True}"),
        ('{"a":"x\ny"}', '{"a": "x', '\ny"}'),
        ('{"a":1e999}', '{"a": ', "1e999}"),
        ('{"a":"\\x"}', '{"a": "', '\\x"}'),
        ("{]", "{", "]"),
        ("[1]", "", "[1]"),
        ('{"a":' + "[" * 80, '{"a": ' + "[" * 63, "[" * 17),
        ('{"a":' + "9" * 5000, '{"a": ', "9" * 5000),
    ],
)
def test_what_is_not_json_ends_it_and_is_kept_as_it_came(
    text: str, before: str, unwritten: str
) -> None:
    for pieces in ([text], list(text)):
        found, transcriber = written(*pieces, " ")
        assert (found, transcriber.unwritten.rstrip(" ")) == (before, unwritten)
        assert transcriber.broken


def test_text_after_the_object_is_left() -> None:
    found, transcriber = written('{"a": {}} rest')
    assert (found, transcriber.rest) == ('{"a": {}}', " rest")


def test_a_string_is_written_before_its_end() -> None:
    assert written('{"city": "Par')[0] == '{"city": "Par'
