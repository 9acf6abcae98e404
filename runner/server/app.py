"""The daemon's ASGI application: all paths, behind the guard, with its store and models.

Importing this module loads neither torch nor llama_cpp nor numpy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from modelfile.builtin import seed_builtin
from registry.store import Store
from runner.errors import StorageFailed
from runner.models.manager import Manager
from runner.server.anthropic.routes import PATHS as ANTHROPIC
from runner.server.apply_template import ApplyTemplateRequest, apply_template
from runner.server.daemon import Daemon
from runner.server.evaluating import EvalRequest, evaluate
from runner.server.guard import Guard
from runner.server.health import health, ready, root, version
from runner.server.key_routes import KeyRequest, add_key, list_keys, remove_key
from runner.server.metrics import metrics
from runner.server.ollama.routes import PATHS as OLLAMA
from runner.server.openai.batches.opening import open_batches
from runner.server.openai.batches.running import Batches
from runner.server.openai.responses.background import Background
from runner.server.openai.responses.storing import FILE_NAME, ResponseFile
from runner.server.openai.routes import PATHS as OPENAI
from runner.server.openapi.answers import (
    DetokenizedText,
    Keys,
    NewKey,
    Prompt,
    Ranking,
    RemovedKey,
    Scores,
    Status,
    Tokens,
    Version,
)
from runner.server.openapi.handlers import describing
from runner.server.routes import Path, router
from runner.server.scoring import RerankRequest, ScoreRequest, rerank, score
from runner.server.stream import NDJSON
from runner.server.tokenizing import DetokenizeRequest, TokenizeRequest, detokenize, tokenize
from runner.server.transfers import Transfers
from runner.server.upkeep.routes import PATHS as UPKEEP

log = logging.getLogger("hearth")

_OWN = (
    Path("/", ("GET",), root, "public", streams="text/plain"),
    Path("/health", ("GET",), health, "public", gives=Status),
    Path("/ready", ("GET",), ready, "public", gives=Status),
    Path("/metrics", ("GET",), metrics, "inference", streams="text/plain"),
    Path("/api/version", ("GET",), version, "inference", gives=Version),
    Path("/api/keys", ("GET",), list_keys, gives=Keys),
    Path("/api/keys", ("POST",), add_key, takes=KeyRequest, gives=NewKey),
    Path("/api/keys/{name}", ("DELETE",), remove_key, gives=RemovedKey),
    Path("/apply-template", ("POST",), apply_template, "inference", ApplyTemplateRequest, Prompt),
    Path("/tokenize", ("POST",), tokenize, "inference", TokenizeRequest, Tokens),
    Path("/detokenize", ("POST",), detokenize, "inference", DetokenizeRequest, DetokenizedText),
    *(
        Path(path, ("POST",), rerank, "inference", RerankRequest, Ranking)
        for path in ("/v1/rerank", "/rerank")
    ),
    *(
        Path(path, ("POST",), score, "inference", ScoreRequest, Scores)
        for path in ("/v1/score", "/score")
    ),
    Path("/api/eval", ("POST",), evaluate, "admin", EvalRequest, Status, NDJSON),
)

_SERVED = (*_OWN, *OPENAI, *ANTHROPIC, *OLLAMA, *UPKEEP)
PATHS = (*_SERVED, *describing(_SERVED))


def create_app(daemon: Daemon, public: bool = False) -> ASGIApp:
    """The application of a daemon. Its lifespan takes the store, seeds the bundled model, and
    ends all workers. public: it listens beyond this machine."""
    inner = router(PATHS, daemon)
    guarded = Guard(inner, daemon.address, daemon.settings.origins, public)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(daemon, receive, send)
        else:
            await guarded(scope, receive, send)

    return app


async def _lifespan(daemon: Daemon, receive: Receive, send: Send) -> None:
    await receive()
    async with opened(daemon):
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})


@asynccontextmanager
async def opened(daemon: Daemon) -> AsyncIterator[None]:
    """The daemon with its store and manager; the store is opened here unless it is already.
    Afterwards all workers are gone and the store is free."""
    store = daemon.store or Store.open(daemon.settings.models_dir)
    daemon.store = store
    try:
        if not store.read_only:
            await asyncio.to_thread(seed_builtin, store)
        daemon.models = Manager(store, daemon.settings, observer=daemon.metrics)
        file = ResponseFile(daemon.settings.data_dir / FILE_NAME)
        daemon.making = Background(file)
        daemon.moving = Transfers(store, daemon.settings, daemon.version)
        daemon.batching = open_batches(daemon)
        try:
            await _resume(daemon.batching)
            yield
        finally:
            await daemon.batching.close()
            await daemon.making.close()
            await daemon.moving.close()
            await daemon.models.close()
    finally:
        store.close()


async def _resume(batches: Batches) -> None:
    """Go on with the batches of an earlier daemon. One that cannot does everything else."""
    try:
        await batches.resume()
    except StorageFailed as error:
        log.error("batches are not gone on with: %s", error.message)
