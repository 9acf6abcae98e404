"""The daemon's ASGI application: all paths, behind the guard, with its store and models.

Importing this module loads neither torch nor llama_cpp nor numpy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from runner.errors import StorageFailed
from runner.library.background_pulls import BackgroundPulls
from runner.library.library import Library
from runner.library.prefix_service import PrefixService
from runner.library.saved_prefixes import SavedPrefixes
from runner.mcp.config import FILE_NAME as MCP_FILE
from runner.mcp.host import McpHost
from runner.models.crashes import Crashes
from runner.models.devices import uses_gpu
from runner.models.manager import Manager
from runner.models.supervisor import WorkerHandle
from runner.server import (
    cluster_routes,
    distill,
    health,
    key_routes,
    mcp_routes,
    perplexity,
    watermark,
)
from runner.server.access import caller_of
from runner.server.access_log import FILE_NAME as ACCESS_LOG
from runner.server.access_log import AccessLog
from runner.server.anthropic import messages
from runner.server.caller import current_caller
from runner.server.cluster import ClusterAccess
from runner.server.console import check, plan, pulls, watch
from runner.server.console import settings as settings_route
from runner.server.freed_memory import return_small_blocks
from runner.server.guard import Guard
from runner.server.keys import KeyRing
from runner.server.llamacpp import (
    adapters,
    apply_template,
    completion,
    embedding,
    infill,
    props,
    rerank,
    slots,
    streams,
    tokenize,
)
from runner.server.llamacpp import models as llamacpp_models
from runner.server.metrics import Metrics
from runner.server.model_facts import KnownModels
from runner.server.ollama import account, blobs, create, embed, login, transfers
from runner.server.ollama import chat as ollama_chat
from runner.server.ollama import models as ollama_models
from runner.server.openai import chat, completions, embeddings, lora_adapters, models
from runner.server.openai.absent_routes import advice_for
from runner.server.openai.audio import speech, transcriptions
from runner.server.openai.batches import handlers as batches
from runner.server.openai.batches.endpoint_call import call as call_endpoint
from runner.server.openai.batches.executor import BatchExecutor, Traffic
from runner.server.openai.batches.journal import TABLES as BATCH_TABLES
from runner.server.openai.batches.journal import BatchJournal
from runner.server.openai.conversations import handlers as conversations
from runner.server.openai.database import Database
from runner.server.openai.files import handlers as files
from runner.server.openai.files.file_store import TABLES as FILE_TABLES
from runner.server.openai.files.file_store import FileStore
from runner.server.openai.responses import handlers as responses
from runner.server.openai.responses import websocket as response_sockets
from runner.server.openai.responses.background import BackgroundResponses
from runner.server.openai.responses.response_store import FILE_NAME as RESPONSES_FILE
from runner.server.openai.responses.response_store import ResponseStore
from runner.server.openai.uploads import handlers as uploads
from runner.server.openai.uploads.upload_store import TABLES as UPLOAD_TABLES
from runner.server.openai.uploads.upload_store import UploadStore
from runner.server.openai.vector_stores import file_handlers as vector_store_files
from runner.server.openai.vector_stores import handlers as vector_stores
from runner.server.openai.vector_stores.embedder import ModelEmbedder
from runner.server.openai.vector_stores.indexer import Indexer
from runner.server.openai.vector_stores.vector_database import FILE_NAME as VECTORS_FILE
from runner.server.openai.vector_stores.vector_database import VectorDatabase
from runner.server.openapi.handlers import openapi_routes
from runner.server.rate_limits import RateLimiter
from runner.server.request_log import DebugLines, RequestSink, recorded
from runner.server.request_log import log as http_log
from runner.server.routes import router, routes_of
from runner.server.services import Services
from runner.server.shared_threads import SharedThreads
from runner.server.tracing import open_traces
from runner.server.ui import page
from runner.server.upkeep import cache, fsck, gc, imports
from runner.setting_values import Address
from runner.settings import Settings

log = logging.getLogger("hearth")

_SERVED = (
    *routes_of(health, page, key_routes, perplexity, watermark, distill),
    *routes_of(apply_template, tokenize, completion, infill, rerank, embedding),
    *routes_of(props, slots, llamacpp_models, adapters, streams),
    *routes_of(chat, completions, responses, response_sockets, conversations, embeddings),
    *routes_of(vector_stores, vector_store_files, files, uploads, batches, messages, models),
    *routes_of(lora_adapters),
    *routes_of(transcriptions, speech),
    *routes_of(ollama_chat, embed, ollama_models, create, transfers, login, blobs, account),
    *routes_of(fsck, gc, cache, imports, mcp_routes),
    *routes_of(check, plan, pulls, settings_route, watch, cluster_routes),
)
ROUTES = (*_SERVED, *openapi_routes(_SERVED))


def build_services(
    settings: Settings, address: Address, keys: KeyRing, library: Library
) -> Services:
    """The services of a daemon at address. Nothing runs yet: see opened."""
    metrics = Metrics()
    prefixes = SavedPrefixes(settings)
    models = Manager(
        library,
        settings,
        start=partial(WorkerHandle.start, attach=PrefixService(prefixes).attach),
        observer=metrics,
        client=lambda: current_caller().share,
    )
    models.crashes = Crashes(settings.state_dir / "crashes.json")
    models.placement = cluster = ClusterAccess(settings, library, models.forget)
    folder = settings.state_dir / "files"
    database = Database(
        folder / "files.sqlite3",
        (*FILE_TABLES, *BATCH_TABLES, *UPLOAD_TABLES),
        "the index of stored files",
    )
    files = FileStore(folder, database)
    traffic = Traffic(
        call=lambda endpoint, body: call_endpoint(services, endpoint, body),
        parallel=max(1, settings.num_parallel // 2),
        clear=models.wait_for_starved_loads,
        caller=lambda owner: caller_of(keys, owner),
    )
    services = Services(
        settings=settings,
        address=address,
        version=library.version,
        keys=keys,
        rates=RateLimiter(settings.rate_limit),
        metrics=metrics,
        library=library,
        known_models=KnownModels(library),
        pulls=BackgroundPulls(library),
        models=models,
        cluster=cluster,
        prefixes=prefixes,
        background=BackgroundResponses(
            ResponseStore(settings.data_dir / RESPONSES_FILE, settings.max_files_size // 2)
        ),
        batches=BatchExecutor(files, BatchJournal(database), traffic),
        uploads=UploadStore(database, files),
        mcp=McpHost(settings.config_dir / MCP_FILE),
        vectors=Indexer(
            VectorDatabase(settings.data_dir / VECTORS_FILE, settings.max_files_size // 2),
            ModelEmbedder(models),
        ),
        sinks=_sinks(settings, library.version),
    )
    return services


def _sinks(settings: Settings, version: str) -> tuple[RequestSink, ...]:
    lines = DebugLines() if http_log.isEnabledFor(logging.DEBUG) else None
    access = AccessLog(settings.state_dir / ACCESS_LOG) if settings.access_log else None
    traces = open_traces(version, settings.offline)
    return tuple(sink for sink in (lines, access, traces) if sink is not None)


def create_app(services: Services, public: bool = False) -> ASGIApp:
    """The application of a daemon. Its lifespan seeds the bundled model, and ends all workers.
    public: it listens beyond this machine."""
    inner = router(ROUTES, services, advice_for)
    settings = services.settings
    guard = Guard(inner, services.address, settings.origins, settings.hosts, public)
    guarded = recorded(guard, services.sinks)

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
    """Run the daemon: the bundled model is installed, and batches continue. Afterwards all workers
    have ended and the library is closed."""
    asyncio.get_running_loop().set_default_executor(SharedThreads())
    try:
        await asyncio.to_thread(services.library.seed)
        services.library.on_change = services.models.forget
        services.library.uses_gpu = partial(uses_gpu, services.settings.state_dir)
        trimming = asyncio.create_task(return_small_blocks())
        try:
            await _resume(services)
            yield
        finally:
            trimming.cancel()
            services.streams.close()
            await services.pulls.close()
            await services.vectors.close()
            await services.batches.close()
            await services.background.close()
            await services.mcp.close()
            await services.models.close()
            await services.cluster.close()
            for sink in services.sinks:
                await sink.close()
    finally:
        await services.library.close()


async def _resume(services: Services) -> None:
    """Go on with what an earlier daemon left. One that cannot does everything else."""
    try:
        await services.batches.resume()
        await services.vectors.begin()
    except StorageFailed as error:
        log.error("batches cannot be resumed: %s", error.message)
