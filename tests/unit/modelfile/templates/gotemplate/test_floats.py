"""Numbers as Go writes them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfile.templates.gotemplate.floats import format_float

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(FINITE, st.sampled_from("efg"))
def test_the_shortest_text_reads_back_as_the_number(value: float, verb: str) -> None:
    text = format_float(value, verb)
    assert float(text) == value
    assert math.copysign(1, float(text)) == math.copysign(1, value)


@given(FINITE)
def test_hexadecimal_reads_back_as_the_number(value: float) -> None:
    assert float.fromhex(format_float(value, "x")) == value


@given(FINITE, st.integers(0, 20))
def test_a_precision_is_that_of_c(value: float, precision: int) -> None:
    assert format_float(value, "f", precision) == f"{value:.{precision}f}"
    assert format_float(value, "e", precision) == f"{value:.{precision}e}"


@pytest.mark.parametrize(
    ("value", "verb", "precision", "expected"),
    [
        (1e6, "g", -1, "1e+06"),
        (123456.0, "g", -1, "123456"),
        (1e21, "f", -1, "1000000000000000000000"),
        (0.0001, "g", -1, "0.0001"),
        (0.00001, "g", -1, "1e-05"),
        (100.0, "g", 3, "100"),
        (123456.0, "g", 3, "1.23e+05"),
        (1.0, "x", -1, "0x1p+00"),
        (1.5, "b", -1, "6755399441055744p-52"),
        (0.0, "e", -1, "0e+00"),
        (-0.0, "g", -1, "-0"),
        (math.inf, "g", -1, "+Inf"),
        (math.nan, "f", 2, "NaN"),
        (5e-324, "g", -1, "5e-324"),
        (5e-324, "b", -1, "1p-1074"),
        (5e-324, "x", -1, "0x1p-1074"),
    ],
)
def test_known_numbers(value: float, verb: str, precision: int, expected: str) -> None:
    assert format_float(value, verb, precision) == expected
