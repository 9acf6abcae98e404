"""The arguments of a tool call."""

from __future__ import annotations

import pytest

from runner.server.openai.call_arguments import read_arguments


def test_an_object_is_read() -> None:
    assert read_arguments('{"city": "Paris"}') == {"city": "Paris"}


def test_no_text_is_an_empty_object() -> None:
    assert read_arguments("") == {}


@pytest.mark.parametrize("text", ["{", "[1]", '"x"', "null", "[" * 100_000])
def test_anything_else_is_refused(text: str) -> None:
    assert read_arguments(text) is None
