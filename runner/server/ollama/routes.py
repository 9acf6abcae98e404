"""Ollama's paths."""

from __future__ import annotations

from runner.server.ollama.blobs import has_blob, put_blob, take_blob
from runner.server.ollama.chat import chat, generate
from runner.server.ollama.create import create
from runner.server.ollama.embed import embed, embed_one
from runner.server.ollama.login import login, logout
from runner.server.ollama.models import copy, delete, ps, show, tags
from runner.server.ollama.pulling import pull, push
from runner.server.routes import Path

PATHS = (
    Path("/api/chat", ("POST",), chat, "inference"),
    Path("/api/generate", ("POST",), generate, "inference"),
    Path("/api/embed", ("POST",), embed, "inference"),
    Path("/api/embeddings", ("POST",), embed_one, "inference"),
    Path("/api/tags", ("GET",), tags, "inference"),
    Path("/api/ps", ("GET",), ps, "inference"),
    Path("/api/show", ("POST",), show, "inference"),
    Path("/api/copy", ("POST",), copy),
    Path("/api/delete", ("DELETE",), delete),
    Path("/api/create", ("POST",), create),
    Path("/api/pull", ("POST",), pull, "pull"),
    Path("/api/push", ("POST",), push),
    Path("/api/login", ("POST",), login),
    Path("/api/logout", ("POST",), logout),
    Path("/api/blobs", ("POST",), take_blob),
    Path("/api/blobs/{digest}", ("HEAD",), has_blob),
    Path("/api/blobs/{digest}", ("POST",), put_blob),
)
