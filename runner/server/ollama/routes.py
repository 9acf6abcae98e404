"""Ollama's paths."""

from __future__ import annotations

from runner.server.ollama.blobs import has_blob, put_blob
from runner.server.ollama.chat import chat, generate
from runner.server.ollama.create import create
from runner.server.ollama.embed import embed
from runner.server.ollama.login import login, logout
from runner.server.ollama.models import copy, delete, ps, show, tags
from runner.server.ollama.pulling import pull, push
from runner.server.routes import Path

PATHS = (
    Path("/api/chat", ("POST",), chat),
    Path("/api/generate", ("POST",), generate),
    Path("/api/embed", ("POST",), embed),
    Path("/api/tags", ("GET",), tags),
    Path("/api/ps", ("GET",), ps),
    Path("/api/show", ("POST",), show),
    Path("/api/copy", ("POST",), copy),
    Path("/api/delete", ("DELETE",), delete),
    Path("/api/create", ("POST",), create),
    Path("/api/pull", ("POST",), pull),
    Path("/api/push", ("POST",), push),
    Path("/api/login", ("POST",), login),
    Path("/api/logout", ("POST",), logout),
    Path("/api/blobs/{digest}", ("HEAD",), has_blob),
    Path("/api/blobs/{digest}", ("POST",), put_blob),
)
