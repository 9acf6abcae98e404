"""GET and POST /api/keys, DELETE /api/keys/{name}: the daemon's API keys, hearth's own routes."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import Field

from runner.server.exchange import Exchange, WireModel
from runner.server.keys import Key, Scope


class KeyRequest(WireModel):
    """POST /api/keys."""

    name: str = Field(min_length=1)
    scopes: list[Scope] = Field(default=["inference"], min_length=1)


async def list_keys(exchange: Exchange) -> None:
    """Answer {"keys": [{"name", "scopes", "created_at"}]}; no key can be read back."""
    await exchange.reply({"keys": [_entry(key) for key in exchange.daemon.keys.keys]})


async def add_key(exchange: Exchange) -> None:
    """Make a key; answer {"name", "scopes", "key"}."""
    asked = await exchange.read(KeyRequest)
    scopes = tuple(dict.fromkeys(asked.scopes))
    text = await asyncio.to_thread(exchange.daemon.keys.add, asked.name, scopes)
    await exchange.reply({"name": asked.name, "scopes": scopes, "key": text})


async def remove_key(exchange: Exchange) -> None:
    """Take a key away."""
    name = exchange.parameter("name")
    await asyncio.to_thread(exchange.daemon.keys.remove, name)
    await exchange.reply({"name": name, "removed": True})


def _entry(key: Key) -> dict[str, Any]:
    return {"name": key.name, "scopes": key.scopes, "created_at": key.created_at}
