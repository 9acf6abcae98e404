"""Ollama's paths."""

from __future__ import annotations

from runner.server.answers import StatusResponse
from runner.server.ollama.answers import (
    LegacyEmbedResponse,
    OllamaChatResponse,
    OllamaEmbedResponse,
    OllamaGenerateResponse,
    PsResponse,
    ShowResponse,
    TagsResponse,
)
from runner.server.ollama.blobs import head_blob, put_blob, take_blob
from runner.server.ollama.chat import chat, generate
from runner.server.ollama.create import create
from runner.server.ollama.embed import embed, embed_one
from runner.server.ollama.login import login, logout
from runner.server.ollama.models import copy, delete, ps, show, tags
from runner.server.ollama.transfers import pull, push
from runner.server.ollama.wire import (
    CopyRequest,
    CreateRequest,
    EmbedRequest,
    IncomingRequest,
    LegacyEmbedRequest,
    LoginRequest,
    OllamaChatRequest,
    OllamaGenerateRequest,
    OllamaModelRequest,
    ShowRequest,
    TransferRequest,
)
from runner.server.routes import RouteSpec
from runner.server.sse import NDJSON

ROUTES = (
    RouteSpec(
        "/api/chat", ("POST",), chat, "inference", OllamaChatRequest, OllamaChatResponse, NDJSON
    ),
    RouteSpec(
        "/api/generate",
        ("POST",),
        generate,
        "inference",
        OllamaGenerateRequest,
        OllamaGenerateResponse,
        NDJSON,
    ),
    RouteSpec("/api/embed", ("POST",), embed, "inference", EmbedRequest, OllamaEmbedResponse),
    RouteSpec(
        "/api/embeddings",
        ("POST",),
        embed_one,
        "inference",
        LegacyEmbedRequest,
        LegacyEmbedResponse,
    ),
    RouteSpec("/api/tags", ("GET",), tags, "inference", gives=TagsResponse),
    RouteSpec("/api/ps", ("GET",), ps, "inference", gives=PsResponse),
    RouteSpec("/api/show", ("POST",), show, "inference", ShowRequest, ShowResponse),
    RouteSpec("/api/copy", ("POST",), copy, takes=CopyRequest),
    RouteSpec("/api/delete", ("DELETE",), delete, takes=OllamaModelRequest),
    RouteSpec("/api/create", ("POST",), create, "admin", CreateRequest, StatusResponse, NDJSON),
    RouteSpec("/api/pull", ("POST",), pull, "pull", TransferRequest, StatusResponse, NDJSON),
    RouteSpec("/api/push", ("POST",), push, "admin", TransferRequest, StatusResponse, NDJSON),
    RouteSpec("/api/login", ("POST",), login, takes=LoginRequest, gives=StatusResponse),
    RouteSpec("/api/logout", ("POST",), logout, takes=LoginRequest, gives=StatusResponse),
    RouteSpec("/api/blobs", ("POST",), take_blob, "admin", IncomingRequest, StatusResponse, NDJSON),
    RouteSpec("/api/blobs/{digest}", ("HEAD",), head_blob),
    RouteSpec("/api/blobs/{digest}", ("POST",), put_blob, takes="application/octet-stream"),
)
