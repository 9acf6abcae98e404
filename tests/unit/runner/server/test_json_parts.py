"""JSON in parts is the JSON that is made at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from runner.server.json_parts import parts_of, to_json_part

VECTORS = [[float(at), 0.5] * 200 for at in range(100)]
LONG: dict[str, Any] = {
    "texts": ["ä"] * 100,
    "vectors": VECTORS,
    "tuples": tuple(map(tuple, VECTORS)),
    "objects": {"data": [{"index": at, "embedding": each} for at, each in enumerate(VECTORS)]},
    "of each token": [{"index": 0, "embedding": VECTORS}],
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


def parts(value: Any) -> list[bytes]:
    return list(map(to_json_part, parts_of(value)))


@pytest.mark.parametrize("value", LONG.values(), ids=LONG)
def test_a_long_one_has_parts_that_are_short(value: Any) -> None:
    made = parts(value)
    assert b"".join(made) == to_json(value)
    assert max(map(len, made)) < 5000


@given(VALUES, st.integers(0, 100))
def test_any_is_the_same(value: Any, times: int) -> None:
    for each in (value, [value] * times, {"a": [[value]] * times, "b": value}):
        assert b"".join(parts(each)) == to_json(each)
