"""Tools for models whose chat template has no place for them: they are listed in the system prompt,
and a call is a JSON object that is the answer (runner.chat.families.plain_json reads it).

The conversation keeps to the roles that every template has. Knows no surface.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from runner.chat.conversation import SYSTEM_ROLES
from runner.chat.tools.calls import Tools
from runner.types import Message, ToolCall

FAMILY: Final = "json"
"""The name of the family that reads the answers."""
_INTRODUCTION: Final = """\
You can call functions. To call one, answer with nothing but a JSON object with its name and \
arguments, like {"name": "example", "arguments": {"key": "value"}}. Its result comes next. \
When no function helps, answer in plain text. The functions:
"""


def with_tools_as_text(
    messages: Sequence[Message], tools: Tools, *, system: bool
) -> tuple[Message, ...]:
    """messages with the tools and all calls and results as text. system: the template has a place
    for a system message; the first message of the user has the list otherwise."""
    turns = [*_joined(_as_text(message) for message in messages)]
    if not tools:
        return tuple(turns)
    functions = [tool.get("function", tool) for tool in tools]
    listed = "\n".join(json.dumps(function, ensure_ascii=False) for function in functions)
    text = _INTRODUCTION + listed
    roles = SYSTEM_ROLES if system else ("user",)
    at = next((at for at, turn in enumerate(turns) if turn.role in roles), None)
    if at is None:
        return (Message(roles[0], text), *turns)
    both = (turns[at].content, text) if system else (text, turns[at].content)
    turns[at] = replace(turns[at], content="\n\n".join(filter(None, both)))
    return tuple(turns)


def _as_text(message: Message) -> Message:
    if message.role == "tool":
        name = f" of {message.name}" if message.name else ""
        return Message("user", f"The result{name}:\n{message.content}", images=message.images)
    calls = "\n".join(map(_call, message.tool_calls))
    content = "\n".join(filter(None, (message.content, calls)))
    return replace(message, content=content, tool_calls=())


def _call(call: ToolCall) -> str:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = call.arguments
    return json.dumps({"name": call.name, "arguments": arguments}, ensure_ascii=False)


def _joined(messages: Iterator[Message]) -> Iterator[Message]:
    """messages, those of the user in a row as one: many templates want roles in turn."""
    last: Message | None = None
    for message in messages:
        if last is not None and last.role == message.role == "user":
            content = f"{last.content}\n\n{message.content}"
            last = replace(last, content=content, images=(*last.images, *message.images))
            continue
        if last is not None:
            yield last
        last = message
    if last is not None:
        yield last
