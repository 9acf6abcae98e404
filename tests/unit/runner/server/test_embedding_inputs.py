from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from runner.errors import InvalidRequest
from runner.server.embedding_inputs import MAX_INPUTS, as_base64, inputs_of, truncate_dimensions


@pytest.mark.parametrize(
    ("given", "inputs"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        ([], []),
    ],
)
def test_the_four_forms_of_input(given: Any, inputs: Any) -> None:
    assert inputs_of(given) == inputs


def test_too_many_inputs_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="2049"):
        inputs_of(["a"] * (MAX_INPUTS + 1))


def test_a_shortened_vector_has_length_1_again() -> None:
    assert truncate_dimensions([0.6, 0.0, 0.8], 1) == [1.0]
    assert truncate_dimensions([0.6, 0.8], None) == [0.6, 0.8]
    assert truncate_dimensions([0.0, 1.0], 1) == [0.0]


def test_more_dimensions_than_there_are_is_an_error() -> None:
    with pytest.raises(InvalidRequest, match="have only 2"):
        truncate_dimensions([0.6, 0.8], 3)


def test_base64_is_little_endian_32_bit_floats() -> None:
    assert base64.b64decode(as_base64([1.0, -2.5])) == struct.pack("<2f", 1.0, -2.5)
