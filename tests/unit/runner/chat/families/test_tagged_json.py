"""JSON between the marks of Nemotron Nano 2, Apriel, MiniMax M1, GigaChat and Apertus."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.chat.families import tagged_json
from runner.chat.tools import tool_parser_for
from runner.types import ToolCall

CALL = '{"name": "f", "arguments": {"a": "</x>"}}'


def parse(text: str, cut: bool = False) -> tuple[str, list[tuple[str, Any]]]:
    parser = tagged_json.parser([])
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


@pytest.mark.parametrize("mark", tagged_json.MARKERS)
def test_a_template_with_one_of_the_marks_has_this_parser(mark: str) -> None:
    assert tool_parser_for(f"{{{{ '{mark}' }}}}") is not None
