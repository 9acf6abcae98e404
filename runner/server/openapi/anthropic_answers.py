"""Anthropic's answers, for the description only."""

from __future__ import annotations

from typing import Any, Literal

from runner.server.openapi.answers import ResponseModel


class AnthropicUsage(ResponseModel):
    """The tokens of a request."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class MessagesResponse(ResponseModel):
    """The answer to a conversation. content: blocks of text, thinking and tool_use."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: str | None
    stop_sequence: str | None
    usage: AnthropicUsage


class CountTokensResponse(ResponseModel):
    """The tokens of a request that was not run."""

    input_tokens: int
