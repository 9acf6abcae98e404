"""Which call the result of a tool answers. Clients name it by id, by tool, or by order only, and
templates want the id as well as the name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from runner.types import Message, ToolCall


def match_tool_results(messages: Iterable[Message]) -> list[Message]:
    """messages, the results of tools with the id and the name of the call that they answer: the
    one with their id, else the first of their name without a result, else the first without
    one."""
    open_calls: list[ToolCall] = []
    result = []
    for message in messages:
        if message.role == "assistant" and message.tool_calls:
            open_calls = list(message.tool_calls)
        if message.role == "tool" and (call := _answered(message, open_calls)) is not None:
            open_calls.remove(call)
            message = replace(
                message,
                tool_call_id=message.tool_call_id or call.id or None,
                name=message.name or call.name,
            )
        result.append(message)
    return result


def _answered(message: Message, open_calls: list[ToolCall]) -> ToolCall | None:
    if message.tool_call_id is not None:
        return next((call for call in open_calls if call.id == message.tool_call_id), None)
    if message.name is not None:
        return next((call for call in open_calls if call.name == message.name), None)
    return open_calls[0] if open_calls else None
