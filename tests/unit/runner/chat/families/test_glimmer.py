"""Muse Glimmer: messages to itself, to tools and to the user become reasoning, calls, content."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfile.templates.renderers import renderer_source
from runner.chat.families.glimmer import FAMILY
from runner.chat.output import OutputDelta, output_parser, special_tokens_of

TOKENS = FAMILY.message_tokens
THINK = " to=self<|message|>The user asks.\nHm <b>.<|eom|>"
SAY = "<|start|>assistant to=user<|message|>Hello < world"
CALL = (
    "<|start|>assistant to=get.get<|message|><atem:function_calls>\n"
    '<atem:invoke name="get.get">\n<atem:parameter name="city"> Rome</atem:parameter>\n'
    '<atem:parameter name="days">2</atem:parameter>\n</atem:invoke>\n</atem:function_calls>'
)
TOOL = {
    "type": "function",
    "function": {"name": "get", "parameters": {"properties": {"city": {"type": "string"}}}},
}


def parse(*pieces: str, name: str | None = "glimmer") -> OutputDelta:
    template = renderer_source("glimmer") if name is None else None
    parser = output_parser(template, tools=[TOOL], name=name)
    assert parser is not None
    return OutputDelta.joined([*(parser.feed(piece) for piece in pieces), parser.finish()])


@pytest.mark.parametrize("name", ["glimmer", None])
@pytest.mark.parametrize("cut", [False, True])
def test_messages_to_itself_are_reasoning(cut: bool, name: str | None) -> None:
    text = THINK + SAY + "<|eot|>"
    parts = parse(*text, name=name) if cut else parse(text, name=name)
    assert parts == OutputDelta("Hello < world", "The user asks.\nHm <b>.")


@pytest.mark.parametrize("cut", [False, True])
def test_a_call_is_found_and_its_values_are_typed(cut: bool) -> None:
    text = THINK + CALL + "<|eot|>"
    parts = parse(*text) if cut else parse(text)
    assert parts.content == ""
    assert [(call.name, json.loads(call.arguments)) for call in parts.calls] == [
        ("get", {"city": " Rome", "days": 2})
    ]


def test_a_call_that_is_none_and_an_answer_without_headers_are_content() -> None:
    assert parse("Just text").content == "Just text"
    broken = "<atem:function_calls>no call</atem:function_calls>"
    assert parse(f" to=user<|message|>{broken}").content == broken


def test_half_a_header_at_the_end_is_not_shown() -> None:
    assert parse(THINK + "<|start|>assistant to=").content == ""


def test_the_marks_are_kept_with_and_without_tools() -> None:
    assert special_tokens_of(None, tools=False, name="glimmer") == TOKENS


@given(st.lists(st.sampled_from([*TOKENS, " to=self", " to=user", "<", "a", "\n"])))
def test_any_text_comes_to_an_end_however_it_is_cut(pieces: list[str]) -> None:
    text = "".join(pieces)
    whole, cut = parse(text), parse(*text)
    assert (whole.content, whole.reasoning) == (cut.content, cut.reasoning)
