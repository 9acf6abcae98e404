"""What the surfaces answer when a request fails."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict


class OllamaError(TypedDict):
    """An error of Ollama's and hearth's own paths."""

    error: str
    code: str


class OpenAIErrorBody(TypedDict):
    """error of OpenAI's errors."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(TypedDict):
    """An error of OpenAI's paths."""

    error: OpenAIErrorBody


class LlamaServerErrorBody(TypedDict):
    """error of llama-server's errors. code: the HTTP status."""

    code: int
    message: str
    type: str


class LlamaServerError(TypedDict):
    """An error of llama-server's paths."""

    error: LlamaServerErrorBody


class AnthropicErrorBody(TypedDict):
    """error of Anthropic's errors."""

    type: str
    message: str
    code: str


class AnthropicError(TypedDict):
    """An error of Anthropic's paths."""

    type: Literal["error"]
    error: AnthropicErrorBody
