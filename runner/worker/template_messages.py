"""Messages as chat templates take them, and a marker to find a place in what they write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from runner.types import Message, ToolCall


def template_message(message: Message) -> dict[str, Any]:
    """A message in the shape that chat templates on the hub expect."""
    result: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        result["reasoning_content"] = message.reasoning
    if message.tool_calls:
        result["tool_calls"] = [_template_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        result["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        result["name"] = message.name
    return result


def _template_call(call: ToolCall) -> dict[str, Any]:
    """Templates write arguments with tojson, so they get the object rather than its text."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = call.arguments
    function = {"name": call.name, "arguments": arguments}
    return {**({"id": call.id} if call.id else {}), "type": "function", "function": function}


def content_parts(content: str) -> list[dict[str, str]]:
    """A content as a list of parts."""
    return [{"type": "text", "text": content}]


def with_marker(content: str | list[dict[str, str]], marker: str) -> str | list[dict[str, str]]:
    """The content with marker behind it."""
    return (
        content + marker if isinstance(content, str) else content_parts(content[0]["text"] + marker)
    )


def absent_marker(messages: Sequence[Mapping[str, Any]]) -> str:
    """A text that stands in no content, of private characters that no template looks for."""
    length = 2
    while any("\ue0c7" * length in str(message["content"]) for message in messages):
        length *= 2
    return "\ue0c7" * length
