"""POST /apply-template: the prompt that a model would get for a conversation, as llama.cpp's server
has it.

Messages may be in the shape of OpenAI or of Ollama. Nothing is generated, but the model is
loaded: its tokens belong to the prompt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field

from runner.errors import InvalidRequest, Unsupported
from runner.models.options import check_options
from runner.server.generation import complete_prompt
from runner.server.http_request import HttpRequest
from runner.server.images import image_of_base64, image_of_url, join_parts, require_vision
from runner.server.leases import leased
from runner.server.llamacpp.answers import ApplyTemplateResponse
from runner.server.request_body import WireModel
from runner.server.routes import route
from runner.types import GenerateRequest, Image, Message, ToolCall

_ROLES = {"developer": "system", "function": "tool"}


class TemplateImageUrl(WireModel):
    """image_url of a part."""

    url: str


class TemplatePart(WireModel):
    """A part of a message's content."""

    type: str = "text"
    text: str | None = None
    image_url: TemplateImageUrl | str | None = None


class TemplateCalledFunction(WireModel):
    """function of a tool call."""

    name: str
    arguments: str | dict[str, Any] | None = None


class TemplateToolCall(WireModel):
    """A tool call in the history."""

    id: str | None = None
    function: TemplateCalledFunction


class TemplateMessage(WireModel):
    """One message."""

    role: str = Field(min_length=1)
    content: str | list[TemplatePart] | None = None
    images: list[str] | None = None
    reasoning_content: str | None = None
    thinking: str | None = None
    tool_calls: list[TemplateToolCall] | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    name: str | None = None


class ApplyTemplateRequest(WireModel):
    """POST /apply-template."""

    model: str = Field(min_length=1)
    messages: list[TemplateMessage] = Field(min_length=1)
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    think: bool | Literal["low", "medium", "high", "max"] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    options: dict[str, Any] | None = None
    keep_alive: Any = None


@route("POST", "/apply-template", scope="inference")
async def apply_template(http: HttpRequest, body: ApplyTemplateRequest) -> ApplyTemplateResponse:
    """Answer {"prompt": ...}."""
    messages = messages_of(body.messages)
    options = check_options(body.options or {})
    await require_vision(http.services.library, body.model, messages, options)
    request = GenerateRequest(
        messages=messages,
        continues=body.continue_final_message,
        tools=tuple(body.tools or ()),
        template_options=_template_options(body),
    )
    async with leased(http, body.model, body.keep_alive, options) as lease:
        return {"prompt": await lease.worker.render(complete_prompt(lease, request))}


def _template_options(body: ApplyTemplateRequest) -> dict[str, Any]:
    options = dict(body.chat_template_kwargs or {})
    if body.think is not None:
        options |= {"think": body.think, "enable_thinking": bool(body.think)}
    if not body.add_generation_prompt:
        options["add_generation_prompt"] = False
    return options


def messages_of(turns: Sequence[TemplateMessage]) -> tuple[Message, ...]:
    """The conversation. Raises InvalidRequest, Unsupported."""
    return tuple(_message(turn, index) for index, turn in enumerate(turns))


def _message(turn: TemplateMessage, index: int) -> Message:
    role = turn.role.lower()
    content, images = join_parts(_parts(turn, index))
    return Message(
        role=_ROLES.get(role, role),
        content=content,
        images=images,
        reasoning=turn.reasoning_content or turn.thinking,
        tool_calls=tuple(_call(call, index) for call in turn.tool_calls or ()),
        tool_call_id=turn.tool_call_id,
        name=turn.tool_name or turn.name,
    )


def _parts(turn: TemplateMessage, index: int) -> Iterator[str | Image]:
    """The images and texts of a message. Raises InvalidRequest, Unsupported."""
    where = f"messages.{index}"
    for at, picture in enumerate(turn.images or ()):
        yield image_of_base64(picture, f"{where}.images.{at}")
    if not isinstance(turn.content, list):
        yield turn.content or ""
        return
    for at, part in enumerate(turn.content):
        if part.type == "image_url" and part.image_url is not None:
            given = part.image_url
            url = given if isinstance(given, str) else given.url
            yield image_of_url(url, f"{where}.content.{at}.image_url")
        elif part.type != "text" or part.text is None:
            raise Unsupported(
                f"{where}.content: a part of type {part.type[:40]!r} cannot be read;"
                " send text or image_url",
                param="messages",
            )
        else:
            yield part.text


def _call(call: TemplateToolCall, index: int) -> ToolCall:
    given = call.function.arguments
    if isinstance(given, str):
        try:
            value = json.loads(given)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise InvalidRequest(
                f"messages.{index}: the arguments of tool call {call.function.name!r} are not a"
                " JSON object",
                param="messages",
            )
    else:
        given = json.dumps(given or {}, ensure_ascii=False)
    return ToolCall(call.id or "", call.function.name, given)
