"""Reasoning and tool calls in one answer."""

from __future__ import annotations

from runner.chat.output import OutputParser, Parts, output_parser

TEMPLATE = "{{ content.split('</think>') }}<tool_call>"
TOOLS = [{"function": {"name": "f"}}]
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


def whole(parser: OutputParser | None, text: str) -> Parts:
    assert parser is not None
    return parser.finish(text)


def test_calls_come_from_the_answer_and_not_from_the_reasoning() -> None:
    text = f"<think>I could {CALL}</think>So: {CALL}"
    parts = whole(output_parser(TEMPLATE, tools=TOOLS), text)
    assert parts.reasoning == f"I could {CALL}"
    assert parts.content == "So:"
    assert [(call.name, call.arguments) for call in parts.calls] == [("f", '{"a": 1}')]


def test_without_tools_a_call_is_text() -> None:
    parts = whole(output_parser(TEMPLATE, tools=()), f"<think>hm</think>{CALL}")
    assert (parts.reasoning, parts.content, parts.calls) == ("hm", CALL, ())


def test_a_template_without_marks_needs_no_parser() -> None:
    assert output_parser("{{ messages }}", tools=TOOLS) is None
    assert output_parser("{{ messages }} <tool_call>", tools=()) is None


def test_marks_that_are_known_better_win() -> None:
    parts = whole(output_parser(TEMPLATE, tools=(), marks=("<a>", "</a>")), "<a>x</a>y")
    assert (parts.reasoning, parts.content) == ("x", "y")


def test_what_is_held_back_arrives_with_the_end() -> None:
    parser = output_parser(TEMPLATE, tools=TOOLS)
    assert parser is not None
    assert parser.feed("<think>a</thi") == Parts(reasoning="a")
    assert parser.finish("s is") == Parts(reasoning="</this is")
