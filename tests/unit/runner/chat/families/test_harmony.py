"""Harmony: channels become reasoning, content and calls."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.chat.families.harmony import FAMILY
from runner.chat.output import OutputDelta, output_parser, special_tokens_of
from runner.chat.tools.calls import Tools

TOKENS = FAMILY.message_tokens
TEMPLATE = "<|start|>assistant<|channel|>final<|message|>"
THINK = "<|channel|>analysis<|message|>User asks.\nHm <b>.<|end|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>Hello < world"
CALL = (
    "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json"
    '<|message|>{"city": "Rome"}<|call|>'
)


TOOLS = [{"type": "function", "function": {"name": name}} for name in ("get_weather", "f")]


def parse(*pieces: str, tools: Tools = TOOLS) -> OutputDelta:
    parser = output_parser(TEMPLATE, tools=tools)
    assert parser is not None
    found = [parser.feed(piece) for piece in pieces] + [parser.finish()]
    return OutputDelta(
        "".join(each.content for each in found),
        "".join(each.reasoning for each in found),
        tuple(call for each in found for call in each.calls),
    )


@pytest.mark.parametrize("cut", [False, True])
def test_the_channels_are_told_apart(cut: bool) -> None:
    text = THINK + FINAL + "<|return|>"
    parts = parse(*text) if cut else parse(text)
    assert parts == OutputDelta("Hello < world", "User asks.\nHm <b>.")


@pytest.mark.parametrize("end", ["", "<|call|>"])
def test_a_message_to_a_function_is_a_call(end: str) -> None:
    parts = parse(*(THINK + CALL.removesuffix("<|call|>") + end))
    assert parts.content == ""
    assert [(call.name, json.loads(call.arguments)) for call in parts.calls] == [
        ("get_weather", {"city": "Rome"})
    ]


def test_the_recipient_may_stand_before_the_channel() -> None:
    parts = parse(' to=functions.f<|channel|>commentary<|message|>{"a": 1}<|call|>')
    assert [(call.name, call.arguments) for call in parts.calls] == [("f", '{"a": 1}')]


def test_a_preamble_is_content_and_arguments_that_are_no_json_are_too() -> None:
    assert parse("<|channel|>commentary<|message|>I will look.<|end|>").content == "I will look."
    parts = parse("<|channel|>commentary to=functions.f<|message|>not json<|call|>")
    assert parts.calls == ()
    assert "not json" in parts.content


def test_without_tools_a_message_to_a_function_is_content() -> None:
    assert parse(CALL, tools=()) == OutputDelta('{"city": "Rome"}')


@pytest.mark.parametrize("text", ["", "plain words", "a <|b", " to the point", "{}"])
def test_text_that_is_not_harmony_is_content(text: str) -> None:
    assert parse(text).content == text


def test_what_arrives_is_shown_at_once() -> None:
    parser = output_parser(TEMPLATE, tools=())
    assert parser is not None
    parser.feed("<|channel|>analysis<|message|>")
    assert parser.feed("so").reasoning == "so"
    assert parser.feed("<|e").reasoning == ""
    assert parser.feed("x").reasoning == "<|ex"


PIECES = st.lists(st.sampled_from([*TOKENS, "analysis", "final", " to=f", "{}", "a", "<|", " "]))


@given(PIECES)
def test_the_pieces_make_no_difference_and_nothing_fails(pieces: list[str]) -> None:
    text = "".join(pieces)
    whole, cut = parse(text), parse(*text)
    assert (whole.content, whole.reasoning) == (cut.content, cut.reasoning)
    assert [(c.name, c.arguments) for c in whole.calls] == [
        (c.name, c.arguments) for c in cut.calls
    ]


def test_the_marks_stay_in_the_text_whether_tools_are_offered_or_not() -> None:
    assert special_tokens_of(TEMPLATE, tools=False) == TOKENS
    assert special_tokens_of("[TOOL_CALLS]", tools=False) == ()
    assert output_parser("{{ messages }}", tools=(), name="harmony") is not None
