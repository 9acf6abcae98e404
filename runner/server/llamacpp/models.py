"""POST /models/load and /models/unload: as llama-server has them where it serves several models."""

from __future__ import annotations

import asyncio
import logging

from pydantic import Field

from runner.errors import HearthError
from runner.server.caller import current_caller
from runner.server.http_request import HttpRequest
from runner.server.llamacpp.answers import Success
from runner.server.request_body import WireModel
from runner.server.routes import route
from runner.server.services import Services

log = logging.getLogger("hearth.http")
_loading: dict[tuple[str, str], asyncio.Task[None]] = {}  # by caller and model


class ModelNameRequest(WireModel):
    """The name of a model."""

    model: str = Field(min_length=1)


@route("POST", "/models/load", scope="inference")
async def load_model(http: HttpRequest, body: ModelNameRequest) -> Success:
    """Start loading a model; /v1/models shows when it is loaded."""
    services = http.services
    key = current_caller().share, services.library.find(body.model).name.short
    if key not in _loading:
        task = _loading[key] = asyncio.create_task(_load(services, body.model))
        task.add_done_callback(lambda _: _loading.pop(key))
    return {"success": True}


@route("POST", "/models/unload", scope="inference")
async def unload_model(http: HttpRequest, body: ModelNameRequest) -> Success:
    """Unload a model as soon as no request uses it."""
    await http.services.models.unload(body.model)
    return {"success": True}


async def _load(services: Services, name: str) -> None:
    try:
        async with services.models.lease(name):
            pass
    except HearthError as error:
        log.warning("%s was not loaded: %s", name, error.message)
