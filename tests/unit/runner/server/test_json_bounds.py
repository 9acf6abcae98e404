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


WIDE_TEXTS = st.text(alphabet='a",:\\\U0001f600\u4e2d\xe9', max_size=8)


def strings(value: Any) -> list[str]:
    """The strings and keys of a value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [*value, *strings(list(value.values()))]
    return [text for item in value for text in strings(item)] if isinstance(value, list) else []


@given(
    value=st.lists(WIDE_TEXTS | st.dictionaries(WIDE_TEXTS, WIDE_TEXTS, max_size=3), max_size=4),
    size=st.integers(1, 40),
    escaped=st.booleans(),
)
def test_the_bytes_of_strings_with_wide_letters_count_wherever_the_pieces_end(
    value: Any, size: int, escaped: bool
) -> None:
    text = json.dumps(value, ensure_ascii=escaped).encode()
    bounds = JsonBounds()
    for start in range(0, len(text), size):
        bounds.add(text[start : start + size])
    wide = [each for each in strings(value) if any(letter > "\uffff" for letter in each)]
    # what is in no string costs nothing, quotes and backslashes in one count or not
    least = sum(letter not in '"\\' for each in wide for letter in each)
    most = sum(len(json.dumps(each, ensure_ascii=escaped).encode()) - 2 for each in wide)
    assert least <= bounds.wide_bytes <= most


def test_an_image_beside_a_wide_letter_is_not_wide() -> None:
    image, bounds = "A" * 300_000, JsonBounds()
    text = f'{{"images":["{image}"],"content":"\U0001f600 a"}}'.encode()
    for start in range(0, len(text), 65_536):
        bounds.add(text[start : start + 65_536])
    assert bounds.wide_bytes == 6
