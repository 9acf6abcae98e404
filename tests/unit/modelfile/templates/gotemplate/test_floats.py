"""Numbers as Go writes them."""

from __future__ import annotations

import math
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfile.templates.gotemplate.floats import format_float

FINITE = st.floats(allow_nan=False, allow_infinity=False)
FORMS: tuple[Literal["e", "f", "g"], ...] = ("e", "f", "g")


@given(FINITE)
@pytest.mark.parametrize("form", FORMS)
def test_the_shortest_text_reads_back_as_the_number(
    form: Literal["e", "f", "g"], value: float
) -> None:
    text = format_float(value, form)
    assert float(text) == value
    assert math.copysign(1, float(text)) == math.copysign(1, value)


@pytest.mark.parametrize(
    ("value", "form", "expected"),
    [
        (1e6, "g", "1e+06"),
        (123456.0, "g", "123456"),
        (1e21, "f", "1000000000000000000000"),
        (0.0001, "g", "0.0001"),
        (0.00001, "g", "1e-05"),
        (0.0, "e", "0e+00"),
        (0.0, "f", "0"),
        (-0.0, "g", "-0"),
        (math.inf, "g", "+Inf"),
        (math.nan, "f", "NaN"),
        (5e-324, "g", "5e-324"),
    ],
)
def test_known_numbers(value: float, form: Literal["e", "f", "g"], expected: str) -> None:
    assert format_float(value, form) == expected
