"""An answer that a limit or a stop string breaks off, in every notation and at every character: no
call becomes whole by it, and no piece of markup becomes content."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.chat.output import OutputDelta, OutputParser, output_parser, parse_delta
from runner.chat.tools.call_stream import ToolCallDelta
from runner.types import Delta, Finish, FinishReason, Usage
from tests.unit.runner.chat.families.test_families import (
    AS_JSON,
    ONE_CALL,
    TEMPLATES,
    TOOLS,
    TWO_CALLS,
)

TEMPLATES = {**TEMPLATES, "harmony": "<|start|><|channel|><|message|>"}
HARMONY = f"<|channel|>commentary to=functions.add <|constrain|>json<|message|>{AS_JSON}<|call|>"
NOTATIONS = [
    *((family, text.replace("5", "12345")) for family, text in [*ONE_CALL, ("harmony", HARMONY)]),
    ("glm", '<tool_call>add{"a": 12345, "s": "7 {x}", "on": true, "items": [1, "b"]}</tool_call>'),
    ("granite", ONE_CALL[0][1].replace("<tool_call>\n", "<|tool_call|>[").replace("5", "12345")),
    ("tagged_json", '<tool_calls>{"name": "add", "arguments": ' + AS_JSON.replace("5", "12345")),
    ("llama3", "<|python_tag|>" + ONE_CALL[16][1].replace("5", "12345")),
]
WHOLE = AS_JSON.replace("5", "12345")


def finish(reason: FinishReason = "length", stop: str | None = None) -> Finish:
    return Finish(reason, Usage(1, 0, 1, 0.0, 0.0, 0.0), stop)


def reader(family: str, *, in_deltas: bool) -> OutputParser:
    found = output_parser(TEMPLATES[family], tools=TOOLS, in_deltas=in_deltas)
    assert found is not None
    return found


def parse(family: str, *pieces: str, in_deltas: bool, how: Finish) -> OutputDelta:
    parser = reader(family, in_deltas=in_deltas)
    fed = [parser.feed(piece) for piece in pieces]
    return OutputDelta.joined([*fed, parse_delta(parser, Delta("", finish=how))])


def readable(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def check(parts: OutputDelta) -> None:
    assert parts.content == ""
    for call in parts.calls:
        assert (call.name, call.arguments) == ("add", WHOLE)
    if (cut := parts.cut_call) is not None:
        assert cut.name == "add"
        assert cut.arguments
        assert WHOLE.startswith(cut.arguments)
        assert not readable(cut.arguments)
        assert not (cut.arguments[-1].isdigit() and WHOLE[len(cut.arguments)].isdigit())
        assert not parts.calls


@pytest.mark.parametrize(("family", "text"), NOTATIONS)
def test_a_call_cut_anywhere_is_not_whole_and_leaves_no_markup(family: str, text: str) -> None:
    seen: list[bool] = []
    for end in range(1, len(text) + 1):
        how = finish() if end % 2 else finish("stop", "\n\n")
        whole = parse(family, text[:end], in_deltas=False, how=how)
        shown = parse(family, text[: end // 2], text[end // 2 : end], in_deltas=True, how=how)
        check(whole)
        check(shown)
        assert bool(shown.calls) >= bool(whole.calls)
        seen.append(bool(whole.calls))
    assert not seen[0]
    assert sorted(seen) == seen  # once it is whole it stays


@pytest.mark.parametrize(
    ("family", "text"), [row for row in NOTATIONS if not row[1].startswith("<tool_call>\n<tool_")]
)
def test_the_cut_call_is_shown_with_the_arguments_that_are_certain(family: str, text: str) -> None:
    at = text.rindex("items")
    for in_deltas in (True, False):
        cut = parse(family, text[:at], in_deltas=in_deltas, how=finish()).cut_call
        assert cut is not None
        usual = not text.startswith("<function=add>{") and "'" not in text
        usual = usual and not text.startswith("<tool_call>add{")
        certain = '{"a": 12345, "s": "7 {x}", "on": true' if usual or "add(" in text else "{"
        assert cut.arguments.startswith(certain)


@pytest.mark.parametrize(("family", "text"), TWO_CALLS)
def test_calls_before_the_cut_stay(family: str, text: str) -> None:
    counts: list[int] = []
    for end in range(len(text) + 1):
        for in_deltas in (True, False):
            parts = parse(family, text[:end], in_deltas=in_deltas, how=finish())
            assert parts.content == ""
            assert [(c.name, c.arguments) for c in parts.calls] == [("f", '{"a": 1}'), ("g", "{}")][
                : len(parts.calls)
            ]
            if parts.cut_call is not None:
                assert not readable(parts.cut_call.arguments)
        counts.append(len(parts.calls))
    assert sorted(counts) == counts
    assert 1 in counts


def test_a_cut_call_has_no_last_delta() -> None:
    parser = reader("hermes", in_deltas=True)
    text = '<tool_call>{"name": "add", "arguments": {"a": 12'
    given: list[Any] = [*parser.feed(text).in_order, *parser.finish("", 0, finish()).in_order]
    assert [piece.arguments for piece in given] == ["", '{"a": ']
    assert not any(piece.last for piece in given if isinstance(piece, ToolCallDelta))


@pytest.mark.parametrize("family", ["hermes", "olmo3", "qwen3_coder"])
def test_a_finished_answer_may_lack_brackets_and_a_stop_of_the_model_finishes_it(
    family: str,
) -> None:
    text = {
        "hermes": '<tool_call>{"name": "add", "arguments": {"a": 12',
        "olmo3": "<function_calls>add(a=12",
        "qwen3_coder": "<tool_call><function=add><parameter=a>12",
    }[family]
    for how in (finish("stop"), finish("stop", "<|im_end|>")):
        parser = reader(family, in_deltas=False)
        parser.turn_ends = ("<|im_end|>",)
        (call,) = parser.finish(text, 0, how).calls
        assert call.arguments == '{"a": 12}'


@pytest.mark.parametrize("family", sorted(TEMPLATES))
@pytest.mark.parametrize("text", ["plain text", "a [1, 2] b", "x\n", 'so {"a": 1} is it'])
def test_other_text_that_is_cut_stays(family: str, text: str) -> None:
    assert parse(family, text, in_deltas=True, how=finish()).content.strip() == text.strip()


@pytest.mark.parametrize("end", range(1, 8))
def test_a_tag_around_reasoning_that_is_cut_is_neither(end: int) -> None:
    parser = output_parser("{{ '</think>' }}", tools=())
    assert parser is not None
    begun = OutputDelta.joined([parser.finish("<think>"[:end], 1, finish())])
    assert (begun.content, begun.reasoning) == ("", "")
    parser = output_parser("{{ '</think>' }}", tools=())
    assert parser is not None
    ended = OutputDelta.joined([parser.finish("<think>so" + "</think>"[:end], 1, finish())])
    assert (ended.content, ended.reasoning) == ("", "so")
