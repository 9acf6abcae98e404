"""Ollama's cases for reasoning between marks."""

from __future__ import annotations

from typing import Any

import pytest

from runner.chat.output import OutputDelta
from runner.chat.reasoning import ReasoningParser
from tests.conformance.vectors import rows

ROWS = rows("thinking.jsonl")


@pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in ROWS])
def test_each_piece_gives_the_thinking_and_content_that_ollama_gives(row: dict[str, Any]) -> None:
    parser = ReasoningParser(row["open"], row["close"])
    for chunk in row["chunks"]:
        parts = OutputDelta.of(parser.feed(chunk["input"]))
        assert (parts.reasoning, parts.content) == (chunk["thinking"], chunk["content"])
