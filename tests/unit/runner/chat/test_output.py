"""Reasoning and tool calls in one answer."""

from __future__ import annotations

from runner.chat.output import OutputDelta, OutputParser, output_parser
from runner.chat.reasoning import special_tokens_of_reasoning

TEMPLATE = "{{ content.split('</think>') }}<tool_call>"
TOOLS = [{"function": {"name": "f"}}]
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


def whole(parser: OutputParser | None, text: str) -> OutputDelta:
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


def test_without_tools_and_reasoning_there_is_nothing_to_look_for() -> None:
    assert output_parser("{{ messages }}", tools=()) is None
    assert output_parser("{{ messages }} <tool_call>", tools=()) is None


def test_marks_that_are_known_better_win() -> None:
    parts = whole(output_parser(TEMPLATE, tools=(), tags=("<a>", "</a>")), "<a>x</a>y")
    assert (parts.reasoning, parts.content) == ("x", "y")


def test_what_is_held_back_arrives_with_the_end() -> None:
    parser = output_parser(TEMPLATE, tools=TOOLS)
    assert parser is not None
    assert parser.feed("<think>a</thi") == OutputDelta(reasoning="a")
    assert parser.finish("s is") == OutputDelta(reasoning="</this is")


def counted(parser: OutputParser | None, *texts: str) -> tuple[OutputDelta, int]:
    assert parser is not None
    pieces = [parser.feed(text, 1) for text in texts]
    return OutputDelta.joined([*pieces, parser.finish()]), parser.reasoning_tokens


def test_the_tokens_of_the_reasoning_are_counted_with_its_marks() -> None:
    parser = output_parser(TEMPLATE, tools=TOOLS)
    parts, tokens = counted(parser, "<think>", "a", "b", "</think>", "so", CALL)
    assert (parts.reasoning, parts.content, len(parts.calls)) == ("ab", "so", 1)
    assert tokens == 4
    assert counted(output_parser(TEMPLATE, tools=TOOLS), "just", " text")[1] == 0


def test_the_tokens_of_harmonys_analysis_are_counted() -> None:
    parser = output_parser(None, tools=(), name="harmony")
    said = ("<|channel|>", "analysis", "<|message|>", "hm", "hm", "<|end|>")
    answer = ("<|start|>assistant", "<|channel|>", "final", "<|message|>", "yes")
    parts, tokens = counted(parser, *said, *answer)
    assert (parts.reasoning, parts.content, tokens) == ("hmhm", "yes", 4)


def test_reasoning_may_begin_again_after_a_call() -> None:
    text = f"<think>a</think>{CALL}\n<think>b</think>done"
    for pieces in ([text], list(text)):
        parts, _ = counted(output_parser(TEMPLATE, tools=TOOLS), *pieces)
        assert (parts.reasoning, parts.content, len(parts.calls)) == ("ab", "done", 1)


def test_only_the_first_call_counts_where_one_is_wanted() -> None:
    parts, _ = counted(output_parser(TEMPLATE, tools=TOOLS, single=True), CALL, CALL, "end")
    assert (len(parts.calls), parts.content) == (1, "end")


def test_parser_names_the_marks_of_reasoning_where_the_template_does_not() -> None:
    parts = whole(
        output_parser("{{ messages }}", tools=(), name="olmo3-think"), "<think>a</think>b"
    )
    assert (parts.reasoning, parts.content) == ("a", "b")
    gemma = output_parser(None, tools=(), name="gemma4")
    parts = whole(gemma, "<|channel>thought\nhm\n<channel|>yes")
    assert (parts.reasoning.strip(), parts.content) == ("hm", "yes")
    assert special_tokens_of_reasoning(("<|channel>thought", "<channel|>"))[-1] == "<|channel>"
