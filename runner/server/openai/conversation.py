"""From the messages of chat completions to those that a chat template reads."""

from __future__ import annotations

from collections.abc import Sequence

from runner.errors import InvalidRequest, Unsupported
from runner.server.images import (
    audio_of_bytes,
    bytes_of_base64,
    image_of_url,
    join_parts,
    without_placeholders,
)
from runner.server.openai.call_arguments import read_arguments
from runner.server.openai.message_wire import ContentPart, OpenAIChatMessage, OpenAIMessageFields
from runner.types import Image, Message, ToolCall


def messages_of(given: Sequence[OpenAIChatMessage]) -> tuple[Message, ...]:
    """The messages. Raises InvalidRequest, Unsupported."""
    if not given:
        raise InvalidRequest("messages is empty: send at least one message", param="messages")
    for index, item in enumerate(given):
        if item.content is None and not item.tool_calls and item.role != "assistant":
            where = f"messages.{index}"
            raise InvalidRequest(f"{where}.content is missing", param=where)
    return tuple(message_of(item, f"messages.{index}") for index, item in enumerate(given))


def message_of(
    item: OpenAIMessageFields, where: str, images_before: Sequence[Image] = ()
) -> Message:
    """The message at that place. Raises InvalidRequest, Unsupported."""
    calls = tuple(
        ToolCall(call.id or f"call_{number}", *call.called)
        for number, call in enumerate(item.tool_calls or ())
    )
    for call in calls:
        _check_arguments(call, where)
    said = item.content or ""
    given: Sequence[ContentPart | str] = [said] if isinstance(said, str) else said
    parts = [_part(part, where, at) for at, part in enumerate(given)]
    content, images = join_parts([*images_before, *parts])
    return Message(
        role={"developer": "system", "function": "tool"}.get(item.role, item.role),
        content=content,
        images=images,
        reasoning=without_placeholders(item.reasoning_content or item.reasoning or "") or None,
        tool_calls=calls,
        tool_call_id=item.tool_call_id,
        name=item.name,
    )


def _part(part: ContentPart | str, where: str, at: int) -> str | Image:
    """What a part of a message holds. Raises InvalidRequest, Unsupported."""
    if isinstance(part, str):
        return part
    if part.type == "image_url" and part.image_url is not None:
        given = part.image_url
        url = given if isinstance(given, str) else given.url
        return image_of_url(url, f"{where}.content.{at}.image_url")
    if part.type == "input_audio" and part.input_audio is not None:
        place = f"{where}.content.{at}.input_audio.data"
        return audio_of_bytes(bytes_of_base64(part.input_audio.data, place), place)
    text = part.refusal if part.type == "refusal" else part.text
    if part.type not in ("text", "refusal") or text is None:
        raise Unsupported(
            f"{where}.content: a part of type {part.type[:40]!r} is not supported; send text,"
            " image_url or input_audio",
            param=where,
        )
    return text


def _check_arguments(call: ToolCall, where: str) -> None:
    if read_arguments(call.arguments) is None:
        raise InvalidRequest(
            f"{where}: the arguments of tool call {call.name!r} are not a JSON object",
            param=where,
        )
