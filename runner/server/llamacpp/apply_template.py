"""POST /apply-template: the prompt that a model would get for a conversation, as llama.cpp's server
has it.

Messages may be in the shape of OpenAI or of Ollama. Nothing is generated, but the model is
loaded: its tokens belong to the prompt.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, field_validator

from runner.models.options import check_options
from runner.server.generation import by_rules, complete_prompt
from runner.server.http_request import HttpRequest
from runner.server.images import MAX_IMAGES, images_of, require_vision
from runner.server.leases import leased
from runner.server.llamacpp.answers import ApplyTemplateResponse
from runner.server.openai.conversation import message_of
from runner.server.openai.message_wire import (
    ContentPart,
    OpenAICalledFunction,
    OpenAIMessageFields,
    OpenAIToolCall,
)
from runner.server.request_body import MAX_MESSAGES, MAX_TOOLS, WireModel
from runner.server.routes import route
from runner.turns import in_steps
from runner.types import GenerateRequest, Message


class TemplatePart(ContentPart):
    """A part of a message's content."""

    type: str = "text"


class TemplateCalledFunction(OpenAICalledFunction):
    """function of a tool call, its arguments as an object or as its text."""

    @field_validator("arguments", mode="before", json_schema_input_type=str | dict[str, Any] | None)
    @classmethod
    def _as_text(cls, given: object) -> object:
        return given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)


class TemplateToolCall(OpenAIToolCall):
    """A tool call in the history."""

    function: TemplateCalledFunction | None = None


class TemplateMessage(OpenAIMessageFields):
    """One message, in the shape of OpenAI or of Ollama."""

    role: str = Field(min_length=1)
    content: str | list[TemplatePart] | None = None
    tool_calls: list[TemplateToolCall] | None = None
    images: list[str] | None = Field(None, max_length=MAX_IMAGES)
    thinking: str | None = None
    tool_name: str | None = None


class ApplyTemplateRequest(WireModel):
    """POST /apply-template."""

    model: str = Field(min_length=1)
    messages: list[TemplateMessage] = Field(min_length=1, max_length=MAX_MESSAGES)
    tools: list[dict[str, Any]] | None = Field(None, max_length=MAX_TOOLS)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    think: bool | Literal["low", "medium", "high", "max"] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    options: dict[str, Any] | None = None
    keep_alive: Any = None


@route("POST", "/apply-template", scope="inference")
async def apply_template(http: HttpRequest, body: ApplyTemplateRequest) -> ApplyTemplateResponse:
    """Render a conversation: {"prompt": ...}. One that cannot fit the model's context is refused as
    in a chat."""
    messages = await in_steps(messages_of, body.messages)
    options = check_options(body.options)
    await require_vision(http.services.library, body.model, messages, options)
    request = GenerateRequest(
        messages=messages,
        continues=body.continue_final_message,
        tools=tuple(body.tools or ()),
        think=body.think,
        think_if_able=body.think is not None,
        template_options=_template_options(body),
    )
    async with leased(http, body.model, body.keep_alive, options) as lease:
        completed = replace(
            complete_prompt(lease, by_rules(http.services, request)),
            context_length=lease.context_length,
            trained_context=lease.resident.trained_context,
        )
        return {"prompt": await lease.worker.render(completed)}


def _template_options(body: ApplyTemplateRequest) -> dict[str, Any]:
    options = dict(body.chat_template_kwargs or {})
    if body.think is not None:
        options |= {"think": body.think, "enable_thinking": bool(body.think)}
    if not body.add_generation_prompt:
        options["add_generation_prompt"] = False
    return options


def messages_of(turns: Sequence[TemplateMessage]) -> tuple[Message, ...]:
    """The conversation. Raises InvalidRequest, Unsupported."""
    return tuple(_message(turn, f"messages.{index}") for index, turn in enumerate(turns))


def _message(turn: TemplateMessage, where: str) -> Message:
    as_openai = {
        "role": turn.role.lower(),
        "content": turn.content or "",
        "reasoning": turn.reasoning or turn.thinking,
        "name": turn.tool_name or turn.name,
    }
    images = images_of(turn.images or (), f"{where}.images")
    return message_of(turn.model_copy(update=as_openai), where, images)
