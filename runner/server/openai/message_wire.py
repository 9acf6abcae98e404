"""The messages and tools of what OpenAI's clients send to chat completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from runner.chat.tools.free_text import arguments_of_text
from runner.server.openai.custom_tools import as_function
from runner.server.request_body import WireModel


class OpenAIImageUrl(WireModel):
    """image_url of a part. detail has no effect: the model's own size is used."""

    url: str
    detail: str | None = None


class OpenAIInputAudio(WireModel):
    """input_audio of a part, in base64. format has no effect: the data says what it is."""

    data: str
    format: str | None = None


class ContentPart(WireModel):
    """A part of a message."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: OpenAIImageUrl | str | None = None
    input_audio: OpenAIInputAudio | None = None


class OpenAICalledFunction(WireModel):
    """function of a tool call."""

    name: str
    arguments: str = "{}"


class CalledCustom(WireModel):
    """custom of a tool call."""

    name: str
    input: str = ""


class OpenAIToolCall(WireModel):
    """A tool call in the history: one of function and custom."""

    id: str | None = None
    type: str | None = None
    function: OpenAICalledFunction | None = None
    custom: CalledCustom | None = None

    @model_validator(mode="after")
    def _has_one(self) -> OpenAIToolCall:
        _only_one(self.function, self.custom)
        return self

    @property
    def called(self) -> tuple[str, str]:
        """The name and the arguments, a custom tool's as those of the function that stands for
        it."""
        if self.custom is not None:
            return self.custom.name, arguments_of_text(self.custom.input)
        assert self.function is not None
        return self.function.name, self.function.arguments


class OpenAIMessageFields(WireModel):
    """What a message may have, whoever says it."""

    role: str
    content: str | Sequence[ContentPart] | None = None
    name: str | None = None
    tool_calls: Sequence[OpenAIToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class OpenAIChatMessage(OpenAIMessageFields):
    """One message."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None
    tool_calls: list[OpenAIToolCall] | None = None


class OpenAIToolFunction(WireModel):
    """function of a tool."""

    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None  # the arguments must match parameters


class CustomTool(WireModel):
    """custom of a tool: its input is a text."""

    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    format: dict[str, Any] | None = None


class OpenAITool(WireModel):
    """A tool that is offered: one of function and custom."""

    type: Literal["function", "custom"] = "function"
    function: OpenAIToolFunction | None = None
    custom: CustomTool | None = None

    @model_validator(mode="after")
    def _has_one(self) -> OpenAITool:
        _only_one(self.function, self.custom)
        return self

    @property
    def name(self) -> str:
        """Its name."""
        given = self.function or self.custom
        assert given is not None
        return given.name

    def as_function(self, path: str) -> dict[str, Any]:
        """What the model is offered. Raises InvalidRequest, Unsupported."""
        if self.custom is not None:
            function = as_function(self.name, self.custom.description, self.custom.format, path)
        else:
            assert self.function is not None
            function = self.function.model_dump(exclude_none=True)
        return {"parameters": {}, **function}


def _only_one(function: object, custom: object) -> None:
    if (function is None) == (custom is None):
        raise ValueError("exactly one of function and custom must be given")
