"""JSON as Go writes it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfile.templates.gotemplate.json_encoder import NotEncodable, marshal
from modelfile.templates.gotemplate.values import NIL, GoMap, GoSlice, GoStrings, from_json

JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(JSON)
def test_what_is_encoded_is_the_same_json(value: Any) -> None:
    text = marshal(from_json(value))
    assert json.loads(text, parse_int=float) == value
    assert not set("<>&\u2028\u2029") & set(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": 1, "a": 2.5}, '{"a":2.5,"b":1}'),
        ("<a&b>\n\x01\x7f", '"\\u003ca\\u0026b\\u003e\\n\\u0001\x7f"'),
        (1e21, "1e+21"),
        (1e-7, "1e-7"),
        (1e-10, "1e-10"),
        (123456789.0, "123456789"),
        (NIL, "null"),
        (GoSlice.nil(), "null"),
        (GoMap.nil(), "null"),
        (GoStrings(), "[]"),
        (b"ab", '"YWI="'),
    ],
)
def test_known_values(value: Any, expected: str) -> None:
    assert marshal(value) == expected


@pytest.mark.parametrize("value", [math.inf, math.nan, [math.inf]])
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(NotEncodable):
        marshal(value)
