"""The daemon's ASGI application: all paths, behind the guard, with its store and models.

Importing this module loads neither torch nor llama_cpp nor numpy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from runner.errors import StorageFailed
from runner.models.manager import Manager
from runner.server.anthropic.routes import ROUTES as ANTHROPIC
from runner.server.guard import Guard
from runner.server.health import health, ready, root, version
from runner.server.key_routes import KeyRequest, add_key, list_keys, remove_key
from runner.server.llamacpp.apply_template import ApplyTemplateRequest, apply_template
from runner.server.llamacpp.rerank import RerankRequest, ScoreRequest, rerank, score
from runner.server.llamacpp.tokenize import DetokenizeRequest, TokenizeRequest, detokenize, tokenize
from runner.server.metrics import metrics
from runner.server.ollama.routes import ROUTES as OLLAMA
from runner.server.openai.batches.assembly import open_batches
from runner.server.openai.batches.executor import BatchExecutor
from runner.server.openai.responses.background import BackgroundResponses
from runner.server.openai.responses.response_store import FILE_NAME, ResponseStore
from runner.server.openai.routes import ROUTES as OPENAI
from runner.server.openapi.answers import (
    ApplyTemplateResponse,
    CreatedKey,
    DetokenizeResponse,
    KeyList,
    RemovedKey,
    RerankResponse,
    ScoreResponse,
    StatusResponse,
    TokenizeResponse,
    VersionResponse,
)
from runner.server.openapi.handlers import describing
from runner.server.perplexity import EvalRequest, evaluate
from runner.server.routes import RouteSpec, router
from runner.server.services import Services
from runner.server.stream import NDJSON
from runner.server.upkeep.routes import ROUTES as UPKEEP

log = logging.getLogger("hearth")

_OWN = (
    RouteSpec("/", ("GET",), root, "public", streams="text/plain"),
    RouteSpec("/health", ("GET",), health, "public", gives=StatusResponse),
    RouteSpec("/ready", ("GET",), ready, "public", gives=StatusResponse),
    RouteSpec("/metrics", ("GET",), metrics, "inference", streams="text/plain"),
    RouteSpec("/api/version", ("GET",), version, "inference", gives=VersionResponse),
    RouteSpec("/api/keys", ("GET",), list_keys, gives=KeyList),
    RouteSpec("/api/keys", ("POST",), add_key, takes=KeyRequest, gives=CreatedKey),
    RouteSpec("/api/keys/{name}", ("DELETE",), remove_key, gives=RemovedKey),
    RouteSpec(
        "/apply-template",
        ("POST",),
        apply_template,
        "inference",
        ApplyTemplateRequest,
        ApplyTemplateResponse,
    ),
    RouteSpec("/tokenize", ("POST",), tokenize, "inference", TokenizeRequest, TokenizeResponse),
    RouteSpec(
        "/detokenize", ("POST",), detokenize, "inference", DetokenizeRequest, DetokenizeResponse
    ),
    *(
        RouteSpec(path, ("POST",), rerank, "inference", RerankRequest, RerankResponse)
        for path in ("/v1/rerank", "/rerank")
    ),
    *(
        RouteSpec(path, ("POST",), score, "inference", ScoreRequest, ScoreResponse)
        for path in ("/v1/score", "/score")
    ),
    RouteSpec("/api/eval", ("POST",), evaluate, "admin", EvalRequest, StatusResponse, NDJSON),
)

_SERVED = (*_OWN, *OPENAI, *ANTHROPIC, *OLLAMA, *UPKEEP)
ROUTES = (*_SERVED, *describing(_SERVED))


def create_app(services: Services, public: bool = False) -> ASGIApp:
    """The application of a daemon. Its lifespan seeds the bundled model and, at the end,
    ends all workers. public: it listens beyond this machine."""
    inner = router(ROUTES, services)
    guarded = Guard(inner, services.address, services.settings.origins, public)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(services, receive, send)
        else:
            await guarded(scope, receive, send)

    return app


async def _lifespan(services: Services, receive: Receive, send: Send) -> None:
    await receive()
    async with opened(services):
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})


@asynccontextmanager
async def opened(services: Services) -> AsyncIterator[None]:
    """The daemon with its manager. Afterwards all workers are gone and the library is closed."""
    library = services.library
    try:
        await asyncio.to_thread(library.seed)
        services.models = Manager(library, services.settings, observer=services.metrics)
        file = ResponseStore(services.settings.data_dir / FILE_NAME)
        services.making = BackgroundResponses(file)
        services.batching = open_batches(services)
        try:
            await _resume(services.batching)
            yield
        finally:
            await services.batching.close()
            await services.making.close()
            await services.models.close()
    finally:
        await library.close()


async def _resume(batches: BatchExecutor) -> None:
    """Go on with the batches of an earlier daemon. One that cannot does everything else."""
    try:
        await batches.resume()
    except StorageFailed as error:
        log.error("batches are not gone on with: %s", error.message)
