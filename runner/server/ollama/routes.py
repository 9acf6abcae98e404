"""Ollama's paths."""

from __future__ import annotations

from runner.server.ollama.blobs import has_blob, put_blob, take_blob
from runner.server.ollama.chat import chat, generate
from runner.server.ollama.create import create
from runner.server.ollama.embed import embed, embed_one
from runner.server.ollama.login import login, logout
from runner.server.ollama.models import copy, delete, ps, show, tags
from runner.server.ollama.pulling import pull, push
from runner.server.ollama.wire import (
    ChatRequest,
    CopyRequest,
    CreateRequest,
    EmbedRequest,
    GenerateRequest,
    IncomingRequest,
    LoginRequest,
    ModelField,
    OldEmbedRequest,
    ShowRequest,
    TransferRequest,
)
from runner.server.openapi.answers import Status
from runner.server.openapi.ollama_answers import (
    Embedded,
    EmbeddedOne,
    Generated,
    LoadedModels,
    Said,
    Shown,
    Tags,
)
from runner.server.routes import Path
from runner.server.stream import NDJSON

PATHS = (
    Path("/api/chat", ("POST",), chat, "inference", ChatRequest, Said, NDJSON),
    Path("/api/generate", ("POST",), generate, "inference", GenerateRequest, Generated, NDJSON),
    Path("/api/embed", ("POST",), embed, "inference", EmbedRequest, Embedded),
    Path("/api/embeddings", ("POST",), embed_one, "inference", OldEmbedRequest, EmbeddedOne),
    Path("/api/tags", ("GET",), tags, "inference", gives=Tags),
    Path("/api/ps", ("GET",), ps, "inference", gives=LoadedModels),
    Path("/api/show", ("POST",), show, "inference", ShowRequest, Shown),
    Path("/api/copy", ("POST",), copy, takes=CopyRequest),
    Path("/api/delete", ("DELETE",), delete, takes=ModelField),
    Path("/api/create", ("POST",), create, "admin", CreateRequest, Status, NDJSON),
    Path("/api/pull", ("POST",), pull, "pull", TransferRequest, Status, NDJSON),
    Path("/api/push", ("POST",), push, "admin", TransferRequest, Status, NDJSON),
    Path("/api/login", ("POST",), login, takes=LoginRequest, gives=Status),
    Path("/api/logout", ("POST",), logout, takes=LoginRequest, gives=Status),
    Path("/api/blobs", ("POST",), take_blob, "admin", IncomingRequest, Status, NDJSON),
    Path("/api/blobs/{digest}", ("HEAD",), has_blob),
    Path("/api/blobs/{digest}", ("POST",), put_blob, takes="application/octet-stream"),
)
