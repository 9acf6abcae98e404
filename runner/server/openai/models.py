"""GET /v1/models and /v1/models/{id}; ids may hold slashes and a tag."""

from __future__ import annotations

from runner.library.models import StoredModel
from runner.server.http_request import HttpRequest
from runner.server.openai.answers import ModelCard, ModelList


async def list_models(http: HttpRequest) -> None:
    """All installed models that can be run, newest first."""
    models = [stored for stored in http.services.library.models() if stored.fault is None]
    models.sort(key=lambda stored: stored.modified_at, reverse=True)
    await http.reply(ModelList(object="list", data=[_entry(stored) for stored in models]))


async def show_model(http: HttpRequest) -> None:
    """One installed model."""
    ident = http.parameter("id")
    stored = http.services.library.find(ident)
    await http.reply({**_entry(stored), "id": ident})


def _entry(stored: StoredModel) -> ModelCard:
    return {
        "id": stored.name.short,
        "object": "model",
        "created": int(stored.modified_at.timestamp()),
        "owned_by": stored.name.namespace,
    }
