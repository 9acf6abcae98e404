"""GET and POST /api/keys, DELETE /api/keys/{name}: the daemon's API keys, hearth's own routes."""

from __future__ import annotations

import asyncio

from pydantic import Field

from runner.server.answers import CreatedKey, KeyEntry, KeyList, RemovedKey
from runner.server.http_request import HttpRequest
from runner.server.keys import ApiKey, Scope
from runner.server.request_body import WireModel
from runner.server.routes import route


class KeyRequest(WireModel):
    """POST /api/keys."""

    name: str = Field(min_length=1)
    scopes: list[Scope] = Field(default=["inference"], min_length=1)


@route("GET", "/api/keys")
async def list_keys(http: HttpRequest) -> KeyList:
    """List the keys: {"keys": [{"name", "scopes", "created_at"}]}; the keys themselves cannot be
    read back."""
    return {"keys": [_entry(key) for key in http.services.keys.keys]}


@route("POST", "/api/keys")
async def add_key(http: HttpRequest, body: KeyRequest) -> CreatedKey:
    """Create a key: {"name", "scopes", "key"}."""
    scopes = list(dict.fromkeys(body.scopes))
    text = await asyncio.to_thread(http.services.keys.add, body.name, tuple(scopes))
    return {"name": body.name, "scopes": [*scopes], "key": text}


@route("DELETE", "/api/keys/{name}")
async def remove_key(http: HttpRequest) -> RemovedKey:
    """Remove a key; the last one stays while other machines can reach the daemon. Its unfinished
    work is cancelled: batches, responses and pulls in the background, resumable streams, files that
    are being read into vector stores."""
    services, name = http.services, http.parameter("name")
    owners = [key.id for key in services.keys.keys if key.name == name]
    keep_one = services.is_public and not services.settings.insecure_public
    await asyncio.to_thread(services.keys.remove, name, keep_one=keep_one)
    for owner in owners:
        await services.batches.cancel_of(owner)
        await services.background.cancel_of(owner)
        await services.pulls.close(owner)
        await services.vectors.close(owner)
        services.streams.close(owner)
    return {"name": name, "removed": True}


def _entry(key: ApiKey) -> KeyEntry:
    return {"name": key.name, "scopes": list(key.scopes), "created_at": key.created_at}
