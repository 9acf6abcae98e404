"""Anthropic's paths, and the choice where OpenAI has the same one."""

from __future__ import annotations

from runner.server.anthropic import models
from runner.server.anthropic.answers import (
    AnyModel,
    AnyModelList,
    CountTokensResponse,
    MessagesResponse,
)
from runner.server.anthropic.messages import count_tokens, messages
from runner.server.anthropic.wire import CountTokensRequest, MessagesRequest
from runner.server.http_request import HttpRequest
from runner.server.openai.models import list_models, show_model
from runner.server.routes import RouteSpec
from runner.server.sse import EVENT_STREAM as SSE


async def _list_models(http: HttpRequest) -> None:
    """All installed models that can be run, newest first."""
    await (models.list_models if _asked_by_anthropic(http) else list_models)(http)


async def _show_model(http: HttpRequest) -> None:
    """One installed model."""
    await (models.show_model if _asked_by_anthropic(http) else show_model)(http)


def _asked_by_anthropic(http: HttpRequest) -> bool:
    """Whether the client says that it speaks to Anthropic: all of its SDKs send a version."""
    return any(name == b"anthropic-version" for name, _ in http.scope["headers"])


ROUTES = (
    RouteSpec(
        "/v1/messages", ("POST",), messages, "inference", MessagesRequest, MessagesResponse, SSE
    ),
    RouteSpec(
        "/v1/messages/count_tokens",
        ("POST",),
        count_tokens,
        "inference",
        CountTokensRequest,
        CountTokensResponse,
    ),
    RouteSpec("/v1/models", ("GET",), _list_models, "inference", gives=AnyModelList),
    RouteSpec("/v1/models/{id:path}", ("GET",), _show_model, "inference", gives=AnyModel),
)
