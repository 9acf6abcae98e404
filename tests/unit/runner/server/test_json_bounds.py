"""How much a JSON text may hold is counted right wherever its pieces end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import InvalidRequest
from runner.server.json_bounds import MAX_KEYS, MAX_OBJECTS, MAX_VALUES, JsonBounds

TEXTS = st.text(alphabet='a",:[]{}\\\n', max_size=8)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
)


def counts(value: Any) -> tuple[int, int, int]:
    """Commas, keys, objects and arrays of a value."""
    if not isinstance(value, list | dict):
        return 0, 0, 0
    items = list(value.values()) if isinstance(value, dict) else value
    inner = [counts(item) for item in items]
    commas, keys, objects = (
        (sum(column) for column in zip(*inner, strict=True)) if inner else (0,) * 3
    )
    return (
        commas + max(0, len(items) - 1),
        keys + (len(value) if isinstance(value, dict) else 0),
        objects + 1,
    )


@given(value=VALUES, size=st.integers(1, 9))
def test_what_is_inside_strings_counts_for_nothing_wherever_the_pieces_end(
    value: Any, size: int
) -> None:
    text = json.dumps(value, separators=(",", ":")).encode()
    bounds = JsonBounds()
    for start in range(0, len(text), size):
        bounds.add(text[start : start + size])
    assert (bounds._values, bounds._keys, bounds._objects) == counts(value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"[" + b"1," * (MAX_VALUES + 1), f"{MAX_VALUES} values"),
        (b"{" + b'"":' * (MAX_KEYS + 1), f"{MAX_KEYS} keys"),
        (b"[" * (MAX_OBJECTS + 1), f"{MAX_OBJECTS} objects and arrays"),
    ],
)
def test_too_many_are_refused_with_the_limit(text: bytes, what: str) -> None:
    with pytest.raises(InvalidRequest, match=f"more than {what}"):
        JsonBounds().add(text)
