"""GET /v1/models and /v1/models/{id} as Anthropic's clients read them."""

from __future__ import annotations

from runner.library.models import StoredModel
from runner.server.anthropic.answers import AnthropicModel, AnthropicModelList
from runner.server.http_request import HttpRequest


async def list_models(http: HttpRequest) -> None:
    """All installed models that can be run, newest first, on one page."""
    models = [stored for stored in http.services.library.models() if stored.fault is None]
    data = [_entry(stored) for stored in models]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    await http.reply(AnthropicModelList(data=data, has_more=False, first_id=first, last_id=last))


async def show_model(http: HttpRequest) -> None:
    """One installed model."""
    ident = http.parameter("id")
    await http.reply({**_entry(http.services.library.find(ident)), "id": ident})


def _entry(stored: StoredModel) -> AnthropicModel:
    return {
        "type": "model",
        "id": stored.name.short,
        "display_name": stored.name.short,
        "created_at": stored.modified_at.isoformat(),
        "lifecycle": "active",
    }
