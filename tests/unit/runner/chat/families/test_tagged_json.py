"""JSON between the marks of Nemotron Nano 2, Apriel, MiniMax M1, GigaChat and Apertus."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.chat.families import family_of
from runner.chat.families.tagged_json import FAMILY
from runner.types import ToolCall

CALL = '{"name": "f", "arguments": {"a": "</x>"}}'


def parse(text: str, cut: bool = False) -> tuple[str, list[tuple[str, Any]]]:
    assert FAMILY.tool_parser is not None
    parser = FAMILY.tool_parser([])
    parts = [part for piece in (text if cut else [text]) for part in parser.feed(piece)]
    parts += parser.finish()
    content = "".join(part for part in parts if isinstance(part, str))
    calls = [part for part in parts if isinstance(part, ToolCall)]
    return content, [(call.name, json.loads(call.arguments)) for call in calls]


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        f"<TOOLCALL>[{CALL}, {CALL}]</TOOLCALL>",
        f"<tool_calls>[{CALL}, {CALL}]</tool_calls>",
        f"<tool_calls>\n{CALL}\n{CALL}\n</tool_calls>",
        '<|tools_prefix|>[{"f": {"a": "</x>"}}, {"f": {"a": "</x>"}}]<|tools_suffix|>',
        f"<|function_call|>[{CALL}, {CALL}]",
    ],
)
def test_each_pair_of_marks_holds_calls(text: str, cut: bool) -> None:
    assert parse(f"Wait. {text}", cut) == ("Wait.", [("f", {"a": "</x>"})] * 2)


@pytest.mark.parametrize(
    "text",
    ["<tool_calls>no calls</tool_calls>", '<TOOLCALL>["f"]</TOOLCALL>', "<tool_calls>", "<TOOL x"],
)
def test_what_is_no_call_is_content(text: str) -> None:
    assert parse(text) == (text, [])


@pytest.mark.parametrize("marker", FAMILY.markers)
def test_a_template_with_one_of_the_markers_has_this_parser(marker: str) -> None:
    assert family_of(f"{{{{ '{marker}' }}}}") is FAMILY
