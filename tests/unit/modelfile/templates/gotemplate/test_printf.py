"""fmt: no format and no value breaks it. What it prints is in tests/conformance."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelfile.templates.budget import LimitExceeded
from modelfile.templates.gotemplate.printf import sprint, sprintf, sprintln
from modelfile.templates.gotemplate.values import NIL, GoStrings, Uint8

VALUES = st.recursive(
    st.none() | st.just(NIL) | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats()
    | st.complex_numbers() | st.text(max_size=8) | st.binary(max_size=8)
    | st.integers(0, 255).map(Uint8) | st.just(GoStrings.nil()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner,
                                                                max_size=3),
    max_leaves=5,
)  # fmt: skip
FORMS = st.lists(
    st.sampled_from([*"%%%+-# 0123456789.*[]vTtdsqxXoObBeEfFgGcUpwz", "é", "[1]", "[2]"]),
    max_size=14,
).map("".join)


def room(size: int) -> None:
    if size > 100_000:
        raise LimitExceeded("too large")


@settings(max_examples=500, deadline=None)
@given(FORMS, st.lists(VALUES, max_size=3))
def test_every_format_takes_every_value(form: str, values: list[Any]) -> None:
    try:
        assert isinstance(sprintf(form, values, room), str)
    except LimitExceeded:
        assert any(character.isdigit() or character == "*" for character in form)


@given(st.lists(VALUES, max_size=4))
def test_println_ends_the_line(values: list[Any]) -> None:
    assert sprintln(values).endswith("\n")
    assert isinstance(sprint(values), str)


def test_a_width_is_asked_for_before_it_is_filled() -> None:
    with pytest.raises(LimitExceeded):
        sprintf("%999999d", [1], room)
