"""Anthropic's blocks become the messages of a template, or are refused by their place."""

from __future__ import annotations

from typing import Any

import pytest

from runner.errors import InvalidRequest, RequestError, Unsupported
from runner.server.anthropic.conversation import messages_of
from runner.server.anthropic.wire import CountTokensRequest
from runner.types import Message, ToolCall

USE = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}


def read(*turns: tuple[str, Any], system: Any = None) -> tuple[Message, ...]:
    messages = [{"role": role, "content": content} for role, content in turns]
    return messages_of(
        CountTokensRequest.model_validate({"model": "m", "messages": messages, "system": system})
    )


def test_the_system_text_comes_first_whether_text_or_blocks() -> None:
    blocks = [{"type": "text", "text": "a", "cache_control": {}}, {"type": "text", "text": "b"}]
    assert read(("user", "hi"), system=blocks)[0] == Message("system", "a\nb")
    assert read(("user", "hi"), system="a")[0] == Message("system", "a")
    assert read(("user", "hi")) == (Message("user", "hi"),)


def test_thinking_text_and_calls_of_the_model_stay_together() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "so: "},
        USE,
    ]
    (message,) = read(("assistant", blocks))
    assert message == Message("assistant", "so: ", "hm", (ToolCall("t1", "add", '{"a": 1}'),))


def test_results_of_tools_come_before_the_text_and_know_their_tool() -> None:
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [{"type": "text", "text": "2"}],
    }
    _, tool, user = read(("assistant", [USE]), ("user", [{"type": "text", "text": "and?"}, result]))
    assert tool == Message("tool", "2", tool_call_id="t1", name="add")
    assert user == Message("user", "and?")


def test_a_failed_tool_is_told_as_an_error() -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "no net", "is_error": True}
    assert read(("assistant", [USE]), ("user", [result]))[1].content == "Error: no net"


def test_a_document_of_text_is_read() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "body"}
    document = {"type": "document", "title": "T", "source": source}
    assert read(("user", [document])) == (Message("user", "T\nbody"),)


@pytest.mark.parametrize(
    ("turn", "error", "place"),
    [
        (("user", [{"type": "video"}]), Unsupported, "messages.0.content.0"),
        (("user", [{"type": "text"}]), InvalidRequest, "messages.0.content.0.text"),
        (("assistant", [{**USE, "input": 5}]), InvalidRequest, "messages.0.content.0.input"),
        (("assistant", [{**USE, "id": ""}]), InvalidRequest, "messages.0.content.0"),
        (
            ("user", [{"type": "tool_result", "tool_use_id": "t9"}]),
            InvalidRequest,
            "messages.0.content.0.tool_use_id",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_place(
    turn: tuple[str, Any], error: type[RequestError], place: str
) -> None:
    with pytest.raises(error) as caught:
        read(turn)
    assert caught.value.details["param"] == place
