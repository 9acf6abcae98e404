"""Anthropic's paths, and the choice where OpenAI has the same one."""

from __future__ import annotations

from runner.server.anthropic import models
from runner.server.anthropic.messages import count_tokens, messages
from runner.server.anthropic.wire import CountRequest, MessageRequest
from runner.server.exchange import Exchange
from runner.server.openai.models import list_models, show_model
from runner.server.openapi.anthropic_answers import Message, TokenCount
from runner.server.openapi.openai_answers import Model, Models
from runner.server.routes import Path
from runner.server.stream import EVENT_STREAM as SSE


async def _list_models(exchange: Exchange) -> None:
    """All installed models that can be run, newest first."""
    await (models.list_models if _asked_by_anthropic(exchange) else list_models)(exchange)


async def _show_model(exchange: Exchange) -> None:
    """One installed model."""
    await (models.show_model if _asked_by_anthropic(exchange) else show_model)(exchange)


def _asked_by_anthropic(exchange: Exchange) -> bool:
    """Whether the client says that it speaks to Anthropic: all of its SDKs send a version."""
    return any(name == b"anthropic-version" for name, _ in exchange.scope["headers"])


PATHS = (
    Path("/v1/messages", ("POST",), messages, "inference", MessageRequest, Message, SSE),
    Path(
        "/v1/messages/count_tokens", ("POST",), count_tokens, "inference", CountRequest, TokenCount
    ),
    Path("/v1/models", ("GET",), _list_models, "inference", gives=Models),
    Path("/v1/models/{id:path}", ("GET",), _show_model, "inference", gives=Model),
)
