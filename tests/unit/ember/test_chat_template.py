"""The chat template that ember's GGUF carries."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ember.chat import render, segments
from tests.ember.exchange import Call, Conversation, Turn

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL_TEXT = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'


def _calling(arguments: Any) -> dict[str, Any]:
    call = {"type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def test_a_question_alone_ends_where_the_assistant_starts() -> None:
    assert render([{"role": "user", "content": "hi"}], generate=True) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_system_message_comes_first_and_tools_go_into_it() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    text = render(messages, [WEATHER])
    assert text.startswith("<|im_start|>system\nBe brief.\n<tools>\n{")
    assert '"name": "get_weather"' in text
    assert "</tools><|im_end|>\n<|im_start|>user\nhi<|im_end|>\n" in text


def test_tools_without_a_system_message_get_one() -> None:
    text = render([{"role": "user", "content": "hi"}], [WEATHER])
    assert text.startswith("<|im_start|>system\n<tools>\n{")


@pytest.mark.parametrize("arguments", [{"city": "Rome"}, '{"city": "Rome"}'])
def test_calls_of_the_past_may_hold_an_object_or_its_text(arguments: Any) -> None:
    messages = [{"role": "user", "content": "Rome?"}, _calling(arguments)]
    expected = f"<|im_start|>assistant\n{CALL_TEXT}<|im_end|>\n"
    assert render(messages, [WEATHER]).endswith(expected)


def test_two_calls_and_their_two_results_share_a_turn_each() -> None:
    call = _calling({"city": "Rome"})
    call["tool_calls"] *= 2
    results = [{"role": "tool", "content": "sun"}, {"role": "tool", "content": "rain"}]
    text = render([{"role": "user", "content": "?"}, call, *results], [WEATHER])
    assert f"{CALL_TEXT}\n{CALL_TEXT}<|im_end|>\n" in text
    assert text.endswith(
        "<|im_start|>user\n<tool_response>\nsun\n</tool_response>\n"
        "<tool_response>\nrain\n</tool_response><|im_end|>\n"
    )


def test_empty_content_is_fine() -> None:
    text = render([{"role": "user", "content": None}, {"role": "assistant", "content": None}])
    assert text == "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"


def test_sorted_keys_change_only_the_order() -> None:
    messages = [{"role": "user", "content": "hi"}]
    plain, in_order = (render(messages, [WEATHER], sort_keys=keys) for keys in (False, True))
    assert plain != in_order
    assert sorted(plain) == sorted(in_order)


def test_only_what_the_assistant_writes_is_learned() -> None:
    turns = (
        Turn("user", "Rome?"),
        Turn("assistant", "", (Call("get_weather", {"city": "Rome"}),)),
        Turn("tool", "sun"),
        Turn("assistant", "Sun."),
    )
    pieces = segments(Conversation("tools", turns, "", "value", "", (WEATHER,)))
    assert [text for text, learned in pieces if learned] == [
        f"{CALL_TEXT}<|im_end|>",
        "Sun.<|im_end|>",
    ]
    whole = render([turn.message() for turn in turns], [WEATHER])
    assert "".join(text for text, _ in pieces) == whole
