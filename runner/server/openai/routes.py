"""OpenAI's paths."""

from __future__ import annotations

from runner.server.openai.chat import chat_completions
from runner.server.openai.completions import completions
from runner.server.openai.embeddings import embeddings
from runner.server.openai.models import list_models, show_model
from runner.server.routes import Path

PATHS = (
    Path("/v1/chat/completions", ("POST",), chat_completions),
    Path("/v1/completions", ("POST",), completions),
    Path("/v1/embeddings", ("POST",), embeddings),
    Path("/v1/models", ("GET",), list_models),
    Path("/v1/models/{id:path}", ("GET",), show_model),
)
