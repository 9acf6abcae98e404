"""From Anthropic's blocks to the messages that a chat template reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from runner.errors import InvalidRequest, Unsupported
from runner.server.anthropic.wire import AnthropicBlock, AnthropicMessage, CountTokensRequest
from runner.server.images import image_of_base64, join_parts, without_placeholders
from runner.types import Image, Message, ToolCall


def messages_of(body: CountTokensRequest) -> tuple[Message, ...]:
    """The system text and the turns. The results of tools stand before what the user said with
    them. Raises InvalidRequest, Unsupported."""
    system = _system(body.system)
    messages = [Message("system", system)] if system else []
    names: dict[str, str] = {}
    for index, turn in enumerate(body.messages):
        where = f"messages.{index}.content"
        if turn.role == "assistant":
            messages.append(_assistant(turn, where, names))
        else:
            messages += _spoken(turn, where, names)
    return tuple(messages)


def _system(given: str | Sequence[AnthropicBlock] | None) -> str:
    if given is None or isinstance(given, str):
        return without_placeholders(given or "")
    texts = (_text(block, f"system.{index}") for index, block in enumerate(given))
    return join_parts(texts)[0]


def _assistant(turn: AnthropicMessage, where: str, names: dict[str, str]) -> Message:
    if isinstance(turn.content, str):
        return Message("assistant", without_placeholders(turn.content))
    texts, thoughts, calls = [], [], []
    for index, block in enumerate(turn.content):
        if block.type == "thinking":
            thoughts.append(block.thinking or "")
        elif block.type == "tool_use":
            call = _call(block, f"{where}.{index}")
            names[call.id] = call.name
            calls.append(call)
        elif block.type != "redacted_thinking":  # nobody but Anthropic can read it
            texts.append(_text(block, f"{where}.{index}"))
    text, thought = without_placeholders("".join(texts)), without_placeholders("".join(thoughts))
    return Message("assistant", text, thought or None, tuple(calls))


def _call(block: AnthropicBlock, where: str) -> ToolCall:
    if not block.id or not block.name:
        raise InvalidRequest(f"{where}: a tool_use needs id and name", param=where)
    if not isinstance(block.input, dict):
        raise InvalidRequest(f"{where}.input is not an object", param=f"{where}.input")
    return ToolCall(block.id, block.name, json.dumps(block.input, ensure_ascii=False))


def _spoken(turn: AnthropicMessage, where: str, names: dict[str, str]) -> Iterator[Message]:
    """The messages of a turn that is not the model's."""
    if isinstance(turn.content, str):
        yield Message(turn.role, without_placeholders(turn.content))
        return
    parts: list[str | Image] = []
    for index, block in enumerate(turn.content):
        place = f"{where}.{index}"
        if block.type == "tool_result":
            yield _result(block, place, names)
        else:
            parts.append(_part(block, place))
    if parts:
        content, images = join_parts(parts)
        yield Message(turn.role, content, images=images)


def _result(block: AnthropicBlock, where: str, names: dict[str, str]) -> Message:
    name = names.get(block.tool_use_id or "")
    if name is None:
        raise InvalidRequest(
            f"{where}: no tool_use before it has the id {(block.tool_use_id or '')[:60]!r}",
            param=f"{where}.tool_use_id",
        )
    given = block.content
    if isinstance(given, list):
        places = (f"{where}.content.{index}" for index in range(len(given)))
        parts = [_part(part, place) for part, place in zip(given, places, strict=True)]
    else:
        parts = [given or ""]
    content, images = join_parts(parts)
    text = f"Error: {content}" if block.is_error else content
    return Message("tool", text, tool_call_id=block.tool_use_id, name=name, images=images)


def _part(block: AnthropicBlock, where: str) -> str | Image:
    """A block of what the user or a tool says. Raises InvalidRequest, Unsupported."""
    if block.type != "image":
        return _text(block, where)
    source = block.source
    if source is None or (source.type == "base64" and source.data is None):
        raise InvalidRequest(f"{where}.source.data is missing", param=f"{where}.source")
    if source.type != "base64":
        raise Unsupported(
            f"{where}.source: an image of type {source.type[:40]!r} is not supported; send it "
            "as base64",
            param=f"{where}.source",
        )
    return image_of_base64(source.data or "", f"{where}.source.data", source.media_type or "")


def _text(block: AnthropicBlock, where: str) -> str:
    """What a block says. Raises InvalidRequest, Unsupported for what is no text."""
    source = block.source
    if block.type == "document" and source is not None and source.type == "text" and source.data:
        return f"{block.title}\n{source.data}" if block.title else source.data
    if block.type != "text":
        raise Unsupported(
            f"{where}: a block of type {block.type[:40]!r} is not supported; send text", param=where
        )
    if block.text is None:
        raise InvalidRequest(f"{where}.text is missing", param=f"{where}.text")
    return block.text
