"""What a compaction stands for when it comes back."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from runner.errors import InvalidRequest
from runner.server.openai.responses.compaction_item import compaction_item, without_compacted


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


def texts(items: list[dict[str, Any]]) -> list[str]:
    return [item["content"].splitlines()[-1] for _, item in without_compacted(items)]


def test_a_summary_stands_beside_what_was_kept() -> None:
    items = [said("a"), compaction_item("of a"), said("b")]
    assert texts(items) == ["a", "of a", "b"]


def test_one_that_keeps_items_replaces_all_before_it() -> None:
    items = [said("a"), said("b"), compaction_item("of a", [said("b")]), said("c")]
    assert texts(items) == ["of a", "b", "c"]
    again = [*items, compaction_item("of all", [])]
    assert texts(again) == ["of all"]


@pytest.mark.parametrize(
    "content",
    [{}, {"summary": 1, "kept": None}, {"summary": "", "kept": 1}, {"summary": "", "kept": [1]}, [],
     {"summary": "", "kept": [{"type": "compaction"}]}],
)  # fmt: skip
def test_what_nobody_here_made_is_refused(content: Any) -> None:
    made = "hearth-1." + base64.b64encode(json.dumps(content).encode()).decode()
    with pytest.raises(InvalidRequest, match=r"input\.0"):
        without_compacted([{"type": "compaction", "encrypted_content": made}])
