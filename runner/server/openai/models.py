"""GET /v1/models and /v1/models/{id}, which OpenAI and Anthropic share; ids may hold slashes and a
tag."""

from __future__ import annotations

from runner.library.models import StoredModel
from runner.server.anthropic.answers import AnthropicModel, AnthropicModelList
from runner.server.http_request import HttpRequest
from runner.server.openai.answers import ModelCard, ModelList
from runner.server.routes import route


@route("GET", "/v1/models", scope="inference")
async def list_models(http: HttpRequest) -> ModelList | AnthropicModelList:
    """All installed models that can be run, newest first, on one page."""
    models = [stored for stored in http.services.library.models() if stored.fault is None]
    models.sort(key=lambda stored: stored.modified_at, reverse=True)
    if not _asked_by_anthropic(http):
        return ModelList(object="list", data=[_card(stored) for stored in models])
    data = [_anthropic_model(stored) for stored in models]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return AnthropicModelList(data=data, has_more=False, first_id=first, last_id=last)


@route("GET", "/v1/models/{id:path}", scope="inference")
async def show_model(http: HttpRequest) -> ModelCard | AnthropicModel:
    """One installed model."""
    ident = http.parameter("id")
    stored = http.services.library.find(ident)
    if _asked_by_anthropic(http):
        return {**_anthropic_model(stored), "id": ident}
    return {**_card(stored), "id": ident}


def _asked_by_anthropic(http: HttpRequest) -> bool:
    """Whether the client says that it speaks to Anthropic: all of its SDKs send a version."""
    return "anthropic-version" in http.headers


def _card(stored: StoredModel) -> ModelCard:
    return {
        "id": stored.name.short,
        "object": "model",
        "created": int(stored.modified_at.timestamp()),
        "owned_by": stored.name.namespace,
    }


def _anthropic_model(stored: StoredModel) -> AnthropicModel:
    return {
        "type": "model",
        "id": stored.name.short,
        "display_name": stored.name.short,
        "created_at": stored.modified_at.isoformat(),
        "lifecycle": "active",
    }
