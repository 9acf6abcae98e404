"""Items of the Responses API as the messages of a conversation, and as they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from runner.chat.tools.free_text import arguments_of_text
from runner.errors import InvalidRequest, Unsupported
from runner.server.ids import new_id
from runner.server.images import join_parts, without_placeholders
from runner.server.openai.call_arguments import read_arguments
from runner.server.openai.responses import image_store, mcp_items
from runner.server.openai.responses import images as pictures
from runner.server.openai.responses.compaction_item import without_compacted
from runner.server.openai.responses.wire import ResponseItem, ResponsePart
from runner.types import Image, Message, ToolCall

_SERVED = ("file_search_call", *mcp_items.TYPES)
_IDENTS = {"message": "msg", "function_call": "fc", "custom_tool_call": "ctc"}
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")


def input_items(
    given: str | Sequence[ResponseItem] | None, *, may_be_empty: bool = False
) -> list[dict[str, Any]]:
    """The input as items to store, each with an id. Raises InvalidRequest."""
    if isinstance(given, str):
        given = [ResponseItem(role="user", content=given)]
    if not given and not may_be_empty:
        raise InvalidRequest("input is empty: send a string or at least one item", param="input")
    return [_stored(item) for item in given or ()]


def _stored(item: ResponseItem) -> dict[str, Any]:
    fields = item.model_dump(exclude_none=True)
    kind = fields.setdefault("type", "message")
    fields.setdefault("id", new_id(_IDENTS.get(kind, "item")))
    if kind == "message" and isinstance(item.content, str):
        text = "output_text" if item.role == "assistant" else "input_text"
        part: dict[str, Any] = {"type": text, "text": item.content}
        fields["content"] = [part | ({"annotations": []} if text == "output_text" else {})]
    return fields


def messages_of(
    items: Sequence[dict[str, Any]],
    instructions: str | None,
    results: Mapping[str, tuple[ToolCall, str]] | None = None,
) -> tuple[Message, ...]:
    """The conversation that items are; reasoning and calls belong to the message of the model
    beside them. results: by the ids of items, calls that the daemon has made just now, and what the
    model is told of them. Raises InvalidRequest, Unsupported."""
    messages = (
        [] if instructions is None else [Message("system", without_placeholders(instructions))]
    )
    turn = _Turn()
    names: dict[str, str] = {}
    requests = mcp_items.requests_of(items)
    for where, fields in without_compacted(items):
        item = _item(fields, where)
        if item.type in _SERVED:
            served = (results or {}).get(fields["id"]) or mcp_items.served(fields, where, requests)
            if served is not None:
                turn.calls.append(served[0])
                messages += [*turn.taken(), _result(*served)]
            continue
        if item.type == "reasoning":
            turn.reasoning += _text(item.content or item.summary, where)
        elif item.type in ("function_call", "custom_tool_call"):
            call = _call(item, where)
            names[call.id] = call.name
            turn.calls.append(call)
        elif item.type == "message" and item.role == "assistant":
            turn.text += _text(item.content, where)
        else:
            messages += turn.taken()
            messages.append(_other(item, where, names))
    return (*messages, *turn.taken())


def _result(call: ToolCall, text: str) -> Message:
    return Message("tool", without_placeholders(text), tool_call_id=call.id, name=call.name)


def _item(fields: dict[str, Any], where: str) -> ResponseItem:
    """Raises InvalidRequest, which only what a client has made up of a compaction does."""
    try:
        return ResponseItem.model_validate(fields)
    except ValidationError:
        raise InvalidRequest(f"{where}: not an item", param=where) from None


def left_open(items: Sequence[dict[str, Any]]) -> bool:
    """Whether the last item is a message that its writer says is not whole, as vLLM has it."""
    last = items[-1] if items else {}
    return last.get("type") == "message" and last.get("status") in ("in_progress", "incomplete")


class _Turn:
    """What the model has said without an answer from anybody."""

    def __init__(self) -> None:
        self.reasoning = self.text = ""
        self.calls: list[ToolCall] = []

    def taken(self) -> list[Message]:
        """It as a message, none when it is empty; the next one begins."""
        text, reasoning, calls = (
            without_placeholders(self.text),
            without_placeholders(self.reasoning),
            tuple(self.calls),
        )
        self.__init__()  # type: ignore[misc]
        if not (text or calls):
            return []
        return [Message("assistant", text, reasoning or None, calls)]


def _other(item: ResponseItem, where: str, names: dict[str, str]) -> Message:
    if item.type == "message" and item.role is not None:
        role = "system" if item.role == "developer" else item.role
        content, images = join_parts(_parts(item.content, where))
        return Message(role, content, images=images)
    if item.type in ("function_call_output", "custom_tool_call_output"):
        name = names.get(item.call_id or "")
        if name is None:
            raise InvalidRequest(
                f"{where}: no call before it has call_id {(item.call_id or '')[:60]!r}",
                param=f"{where}.call_id",
            )
        output, images = join_parts(_parts(item.output, where))
        return Message("tool", output, tool_call_id=item.call_id, name=name, images=images)
    raise Unsupported(
        f"{where}: an item of type {(item.type or '')[:40]!r} is not supported", param=where
    )


def _call(item: ResponseItem, where: str) -> ToolCall:
    if not item.call_id or not item.name:
        raise InvalidRequest(f"{where}: a {item.type} needs call_id and name", param=where)
    name = mcp_items.function_name(item.namespace, item.name) if item.namespace else item.name
    if item.type == "custom_tool_call":
        return ToolCall(item.call_id, name, arguments_of_text(item.input or ""))
    if read_arguments(item.arguments or "") is None:
        raise InvalidRequest(f"{where}.arguments: not a JSON object", param=f"{where}.arguments")
    return ToolCall(item.call_id, name, item.arguments or "{}")


def _parts(content: str | Sequence[ResponsePart] | None, where: str) -> Iterator[str | Image]:
    """What a user or a tool says, in order. Raises InvalidRequest, Unsupported."""
    if content is None or isinstance(content, str):
        yield content or ""
        return
    for at, part in enumerate(content):
        if part.type == image_store.TYPE:
            yield pictures.image_of(part, f"{where}.content.{at}")
        else:
            yield _text([part], where)


def _text(content: str | Sequence[ResponsePart] | None, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content:
        if part.type == "refusal":
            texts.append(part.refusal or "")
        elif part.type in _TEXTS and part.text is not None:
            texts.append(part.text)
        else:
            raise Unsupported(
                f"{where}.content: a part of type {part.type[:40]!r} is not supported; send text",
                param=where,
            )
    return "\n".join(texts)
