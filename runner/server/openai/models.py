"""GET /v1/models and /v1/models/{id}, which OpenAI and Anthropic share; ids may hold slashes and a
tag."""

from __future__ import annotations

from collections.abc import Sequence

from runner.library.adapters import Parents, parents
from runner.library.models import StoredModel
from runner.server.anthropic.answers import AnthropicModel, AnthropicModelList
from runner.server.http_request import HttpRequest
from runner.server.openai.answers import ModelCard, ModelList
from runner.server.routes import route
from runner.server.services import Services


@route("GET", "/v1/models", "/models", scope="inference")
async def list_models(http: HttpRequest) -> ModelList | AnthropicModelList:
    """List all installed models that can be run, newest first, on one page."""
    installed = http.services.library.models()
    http.services.known_models.keep_only(installed)
    models = [stored for stored in installed if stored.fault is None]
    models.sort(key=lambda stored: stored.modified_at, reverse=True)
    if not http.of_anthropic:
        whose = parents(models)
        cards = [await _card(http, stored, models, whose) for stored in models]
        return ModelList(object="list", data=cards)
    data = [_anthropic_model(stored) for stored in models]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return AnthropicModelList(data=data, has_more=False, first_id=first, last_id=last)


@route("GET", "/v1/models/{id:path}", scope="inference")
async def show_model(http: HttpRequest) -> ModelCard | AnthropicModel:
    """Get an installed model."""
    ident = http.parameter("id")
    stored = http.services.library.find(ident)
    if http.of_anthropic:
        return {**_anthropic_model(stored), "id": ident}
    models = http.services.library.models()
    return {**await _card(http, stored, models, parents(models)), "id": ident}


async def _card(
    http: HttpRequest, stored: StoredModel, installed: Sequence[StoredModel], whose: Parents
) -> ModelCard:
    """The last block is what llama-server tells; aliases are all names of the same model."""
    facts = await http.services.known_models.facts(stored)
    parent = whose.get(stored.name)
    same = (other.name.short for other in installed if other.digest == stored.digest)
    return {
        "id": stored.name.short,
        "object": "model",
        "created": int(stored.modified_at.timestamp()),
        "owned_by": stored.name.namespace,
        "parent": None if parent is None else parent.name.short,
        "aliases": sorted(same),
        "capabilities": list(facts.capabilities),
        "meta": {
            "n_vocab": facts.vocabulary,
            "n_ctx_train": facts.details.context_length or 0,
            "n_embd": facts.details.embedding_length or 0,
            "n_params": facts.parameters,
            "size": facts.tensors_bytes,
        },
        "status": {"value": load_state(http.services, stored)},
    }


def load_state(services: Services, stored: StoredModel) -> str:
    """Whether a model is loaded, loading or unloaded."""
    key = str(stored.digest)
    resident = next((each for each in services.models.residents if each.key == key), None)
    if resident is None:
        return "unloaded"
    return "loaded" if resident.load.loaded else "loading"


def _anthropic_model(stored: StoredModel) -> AnthropicModel:
    return {
        "type": "model",
        "id": stored.name.short,
        "display_name": stored.name.short,
        "created_at": stored.modified_at.isoformat(),
        "lifecycle": "active",
    }
