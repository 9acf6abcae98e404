"""Calls as JSON without a family's markers: found wherever they stand, and nothing else held."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.chat.output import OutputDelta, output_parser
from runner.chat.tools.call_stream import ToolCallDelta
from runner.chat.tools.delimited import MAX_CALL_CHARS
from tests.properties import examples

TEMPLATE = "<tool_call>"
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("add", "get_weather")]
ADD = '{"name": "add", "arguments": {"a": 1, "b": [2, {"c": "}"}]}}'
ADDED = ("add", {"a": 1, "b": [2, {"c": "}"}]})
SUN = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
SUNNY = ("get_weather", {"city": "Oslo"})


def parse(*pieces: str, in_deltas: bool = False, **more: Any) -> tuple[str, list[tuple[str, Any]]]:
    parser = output_parser(TEMPLATE, tools=TOOLS, in_deltas=in_deltas, **more)
    assert parser is not None
    found = OutputDelta.joined([*map(parser.feed, pieces), parser.finish()])
    return found.content, [(call.name, _loads(call.arguments)) for call in found.calls]


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@pytest.mark.parametrize(
    ("text", "said", "calls"),
    [
        (ADD, "", [ADDED]),
        (f"```json\n{ADD}\n```", "", [ADDED]),
        (f"```\n{ADD}\n```", "", [ADDED]),
        (f"```tool_call\n{ADD}\n```", "", [ADDED]),
        (f"I look.\n\n```json\n{SUN}\n```\n\nDone.", "I look.Done.", [SUNNY]),
        (f"I look: {SUN} and tell.", "I look:and tell.", [SUNNY]),
        (f"[{ADD}, {SUN}]", "", [ADDED, SUNNY]),
        (f"```json\n[\n{ADD},\n{SUN}\n]\n```", "", [ADDED, SUNNY]),
        (f"```json\n{ADD}\n{SUN}\n```", "", [ADDED, SUNNY]),
        (f"```json\n{ADD}\n```\nand\n```json\n{SUN}\n```", "and", [ADDED, SUNNY]),
        (f"{ADD}\n{SUN}", "", [ADDED, SUNNY]),
        (f'{{"tool_calls": [{ADD}, {SUN}]}}', "", [ADDED, SUNNY]),
        (f'{{"tool_calls": [{{"type": "function", "function": {ADD}}}]}}', "", [ADDED]),
        (f'{{"id": "call_1", "type": "function", "function": {ADD}}}', "", [ADDED]),
        ('{"name": "add", "parameters": {"a": 1}}', "", [("add", {"a": 1})]),
        ('{"arguments": {"a": 1}, "name": "add"}', "", [("add", {"a": 1})]),
        ('{"function": "add", "arguments": "{\\"a\\": 1}"}', "", [("add", {"a": 1})]),
        ('```json\n{"name": "add", "arguments": {"a": 1}\n```', "", [("add", {"a": 1})]),
        ('```json\n{"name": "add", "arguments": {"a": 1,}}', "", [("add", {"a": 1})]),
        ('{"name": "add", "arguments": {"a": "```"}}', "", [("add", {"a": "```"})]),
        (f"<tool_call>{ADD}</tool_call>\n```json\n{SUN}\n```", "", [ADDED, SUNNY]),
        (f"So.\n```json\n{SUN}\n```<tool_call>{ADD}</tool_call>", "So.", [SUNNY, ADDED]),
        (f"```python\nx = 1\n```\n{ADD}", "```python\nx = 1\n```", [ADDED]),
        (f"f(x) {{ return `{{` }} then {ADD}", "f(x) { return `{` } then", [ADDED]),
    ],
)
def test_calls_are_found(text: str, said: str, calls: list[tuple[str, Any]]) -> None:
    for in_deltas in (False, True):
        assert parse(text, in_deltas=in_deltas) == (said, calls)
        assert parse(*text, in_deltas=in_deltas) == (said, calls)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "delete", "arguments": {"a": 1}}',
        '```json\n{"name": "Bob", "age": 3}\n```\n',
        '{"name": "add"}',
        '{"name": "add", "description": "adds", "parameters": {"a": 1}}',
        f'{{"steps": [{ADD}]}}',
        f'```json\n{{"steps": [{ADD}]}}\n```',
        f"```python\n{ADD}\n```",
        f"Write `{ADD}` for it.",
        f"Write ``[{ADD}]`` for it.",
        '[{"name": "Bob"}, {"name": "Ann"}]',
        "[1, 2]  {x} {} [ ] ``` ` `` {",
        '```json\n{"a": ',
        '{"name": "ad',
        "```",
        "```js",
        "  \n",
    ],
)
def test_other_json_and_code_is_content(text: str) -> None:
    for in_deltas in (False, True):
        assert parse(text, in_deltas=in_deltas) == (text, [])
        assert parse(*text, in_deltas=in_deltas) == (text, [])


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ('{"na', '{"na'),
        ('{"name": "Bo', ""),
        ('{"name": "ad', '{"name": "ad'),
        ('{"temperature', ""),
        ("```json\n[1", ""),
        ("```jso", "```jso"),
        ("```rust\nfn main() {", ""),
        ('say `{"name": "add", "arguments": {', ""),
        ('{"name": "add", "age"', ""),
        ("a [link](http://x) and x[0] {y", ""),
    ],
)
def test_only_what_may_still_be_a_call_is_held(text: str, held: str) -> None:
    parser = output_parser(TEMPLATE, tools=TOOLS)
    assert parser is not None
    said = "".join(parser.feed(char).content for char in text)
    assert said == text.removesuffix(held)


def test_arguments_are_shown_while_they_are_written() -> None:
    parser = output_parser(TEMPLATE, tools=TOOLS, in_deltas=True)
    assert parser is not None
    text = f"```json\n[{ADD}, {SUN}]\n```"
    parts = [part for char in text[:55] for part in parser.feed(char).in_order]
    assert [type(part) for part in parts] == [ToolCallDelta] * len(parts)
    joined = "".join(part.arguments for part in parts if isinstance(part, ToolCallDelta))
    assert joined == '{"a": 1, "b": [2'


def test_they_count_only_where_the_tool_format_is_not_named_and_tools_are_offered() -> None:
    text = f"```json\n{ADD}\n```"
    assert parse(text, name="hermes") == (text, [])
    assert parse(text, name="json") == ("", [ADDED])
    assert output_parser(TEMPLATE, tools=(), name=None) is None
    parser = output_parser("{{ messages }}", tools=TOOLS)
    assert parser is not None
    assert [call.name for call in parser.finish(text).calls] == ["add"]


def test_a_call_longer_than_any_is_content() -> None:
    text = '{"name": "add", "arguments": {"a": "' + "x" * MAX_CALL_CHARS + f'"}}}} {ADD}'
    for size in (len(text), 1000):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert parse(*pieces) == (text, [])


MARKS = [
    *("```json\n", "```", "```\n", "`", "[", "]", "{", "}", ",", "\n", " ", "so", '"', ":", "\\"),
    *(
        ADD,
        SUN,
        '{"name": "add", "arguments": ',
        '{"tool_calls": [',
        '{"name": "x", ',
        "<tool_call>",
    ),
    *("</tool_call>", '{"function": ', '"arguments": {"a": 1}', '{"a": 1}', "```python\n", "é"),
]


@examples(130)
@given(st.lists(st.sampled_from(MARKS), max_size=12), st.lists(st.integers(0, 300), max_size=5))
def test_any_chunks_of_a_text_give_the_same(marks: list[str], cuts: list[int]) -> None:
    text = "".join(marks)
    at = [0, *sorted(cuts), len(text)]
    pieces = [text[begin:end] for begin, end in pairwise(at)]
    for in_deltas in (False, True):
        whole = parse(text, in_deltas=in_deltas)
        assert parse(*pieces, in_deltas=in_deltas) == whole
        assert parse(*text, in_deltas=in_deltas) == whole
    said, calls = parse(text)
    if not calls:
        assert said == text
