"""GET /api/cache: the prompts that are saved on the disk. POST /api/cache/clear: remove them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from runner.library.lookup import parse_name
from runner.library.saved_prefixes import SavedPrefixes
from runner.server.answers import CacheClearResponse, CacheResponse
from runner.server.http_request import HttpRequest
from runner.server.ollama.progress import printable
from runner.server.routes import route
from runner.server.upkeep.wire import CacheClearRequest


@route("GET", "/api/cache")
async def show_cache(http: HttpRequest) -> CacheResponse:
    """List the saved prompts of each model, last used first."""
    return await asyncio.to_thread(_fields, http.services.prefixes)


def _fields(prefixes: SavedPrefixes) -> CacheResponse:
    return {
        "path": printable(prefixes.root),
        "size": prefixes.size_bytes,
        "limit": prefixes.limit_bytes if prefixes.is_on else 0,
        "models": [
            {
                "model": entry.model,
                "tokens": entry.tokens,
                "size": entry.size_bytes,
                "files": entry.files,
                "used_at": datetime.fromtimestamp(entry.used_at, UTC).isoformat(),
            }
            for entry in prefixes.entries()
        ],
    }


@route("POST", "/api/cache/clear")
async def clear_cache(http: HttpRequest, body: CacheClearRequest) -> CacheClearResponse:
    """Remove saved prompts. Models in memory keep the prompts in their caches."""
    model = None if body.model is None else parse_name(body.model).short
    return {"size": await asyncio.to_thread(http.services.prefixes.clear, model)}
