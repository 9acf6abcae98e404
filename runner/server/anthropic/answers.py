"""What Anthropic's routes answer."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict


class AnthropicUsage(TypedDict):
    """The tokens of a request. normalized: the rules that changed its prompt, if any did."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    server_tool_use: None
    normalized: NotRequired[list[str]]


class MessageUsage(AnthropicUsage):
    """The same of a message."""

    cache_creation: None
    inference_geo: None
    service_tier: Literal["standard"]


class MessageHead(TypedDict):
    """What a message begins with."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str


class MessageEnding(TypedDict):
    """Why a message ended."""

    container: None
    stop_details: None
    stop_reason: str | None
    stop_sequence: str | None


class MessagesResponse(MessageHead, MessageEnding):
    """The answer to a conversation. content: blocks of text, thinking and tool_use."""

    content: list[dict[str, Any]]
    usage: MessageUsage


class CountTokensResponse(TypedDict):
    """The tokens of a request that was not run."""

    input_tokens: int


class AnthropicModel(TypedDict):
    """An installed model."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str
    lifecycle: Literal["active"]


class AnthropicModelList(TypedDict):
    """The installed models, on one page."""

    data: list[AnthropicModel]
    has_more: bool
    first_id: str | None
    last_id: str | None
