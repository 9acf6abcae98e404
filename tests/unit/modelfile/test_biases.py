"""Every form of logit_bias means the same."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfile.biases import MAX_BIASES, Bias, biases, canonical
from tests.properties import examples

keys = st.integers(0, 10**9 - 1) | st.text(min_size=1, max_size=20)
numbers = st.floats(-100, 100).map(lambda value: float(f"{value:.10g}")) | st.just(-math.inf)


@pytest.mark.parametrize(
    "value",
    [
        "15043=-1.5",
        ["15043=-1.5"],
        {"15043": -1.5},
        [[15043, -1.5]],
        [["15043", -1.5]],
        ("15043=-15e-1",),
    ],
)
def test_every_form_of_one_bias_is_kept_the_same(value: Any) -> None:
    assert canonical(value) == ("15043=-1.5",)
    assert biases(("15043=-1.5",)) == ((15043, -1.5),)


def test_a_text_may_hold_blanks_digits_and_equal_signs() -> None:
    assert biases((" a=b=2", '"123"=1', '"\\"x"=-inf')) == (
        (" a=b", 2.0),
        ("123", 1.0),
        ('"x', -math.inf),
    )


def test_false_means_never() -> None:
    assert canonical([["x", False], [7, False]]) == ("x=-inf", "7=-inf")


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        "15043",
        "=1",
        "x=",
        "x=101",
        "x=nan",
        "x=inf",
        '"x=1',
        '"x=1"',
        [[1, True]],
        [[1.5, 1]],
        [[True, 1]],
        [[-1, 1]],
        [[1, 2, 3]],
        {"": 1},
        {"x": "1"},
        {"x": math.nan},
        {"x" * 257: 1},
        [[i, 1] for i in range(MAX_BIASES + 1)],
    ],
)
def test_what_is_no_bias_is_refused(value: Any) -> None:
    assert canonical(value) is None


def test_a_kept_form_that_is_none_raises() -> None:
    with pytest.raises(ValueError, match="not TOKEN=BIAS"):
        biases(("hot",))


@examples(60)
@given(st.lists(st.tuples(keys, numbers), max_size=5))
def test_the_kept_form_means_the_pairs_it_was_made_of(pairs: list[Bias]) -> None:
    kept = canonical([list(pair) for pair in pairs])
    assert kept is not None
    digits = [(int(key) if _is_id(key) else key, bias) for key, bias in pairs]
    assert all(_is_id(key) or isinstance(key, str) for key, _ in digits)
    assert canonical(kept) == kept
    assert [bias for _, bias in biases(kept)] == [bias for _, bias in pairs]


def _is_id(key: int | str) -> bool:
    return isinstance(key, int) or (key.isascii() and key.isdigit() and len(key) < 10)
