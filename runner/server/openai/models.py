"""GET /v1/models and /v1/models/{id}; ids may hold slashes and a tag."""

from __future__ import annotations

from typing import Any

from registry.store import StoredModel
from runner.server.exchange import Exchange


async def list_models(exchange: Exchange) -> None:
    """All installed models that can be run, newest first."""
    models = [stored for stored in exchange.daemon.shelf.models() if stored.fault is None]
    models.sort(key=lambda stored: stored.modified_at, reverse=True)
    await exchange.reply({"object": "list", "data": [_entry(stored) for stored in models]})


async def show_model(exchange: Exchange) -> None:
    """One installed model."""
    ident = exchange.parameter("id")
    stored = exchange.daemon.manager.find(ident)
    await exchange.reply({**_entry(stored), "id": ident})


def _entry(stored: StoredModel) -> dict[str, Any]:
    return {
        "id": stored.name.short,
        "object": "model",
        "created": int(stored.modified_at.timestamp()),
        "owned_by": stored.name.namespace,
    }
