"""Tools as text in the conversation."""

from __future__ import annotations

import json

from runner.chat.tools.generic_format import with_tools_as_text
from runner.types import Image, Message, ToolCall

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
USER = Message("user", "1+0?")


def test_the_system_message_lists_the_tools() -> None:
    own, user = with_tools_as_text([Message("system", "Be kind."), USER], [TOOL], system=True)
    assert own.content.startswith("Be kind.\n\nYou can call functions.")
    assert json.loads(own.content.splitlines()[-1]) == TOOL["function"]
    assert user == USER
    made, user = with_tools_as_text([USER], [TOOL], system=True)
    assert (made.role, user) == ("system", USER)


def test_a_template_without_system_messages_gets_them_with_the_question() -> None:
    (user,) = with_tools_as_text([USER], [TOOL], system=False)
    assert user.role == "user"
    assert user.content.startswith("You can call functions.")
    assert user.content.endswith("\n\n1+0?")


def test_calls_and_results_are_turns_of_model_and_user() -> None:
    calls = (ToolCall("x", "add", '{"a": 1}'), ToolCall("y", "add", "broken"))
    turns = [
        USER,
        Message("assistant", "So:", tool_calls=calls),
        Message("tool", "1", name="add", tool_call_id="x"),
        Message("tool", "2", images=(Image(b""),)),
        Message("user", "and?"),
    ]
    user, model, results = with_tools_as_text(turns, (), system=True)
    assert user == USER
    assert (model.role, model.tool_calls) == ("assistant", ())
    said, first, second = model.content.splitlines()
    assert said == "So:"
    assert json.loads(first) == {"name": "add", "arguments": {"a": 1}}
    assert json.loads(second)["arguments"] == "broken"
    assert results.role == "user"
    assert results.content == "The result of add:\n1\n\nThe result:\n2\n\nand?"
    assert len(results.images) == 1
