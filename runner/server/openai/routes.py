"""OpenAI's paths. /v1/models is Anthropic's too: see runner.server.anthropic.routes."""

from __future__ import annotations

from runner.server.openai.chat import chat_completions
from runner.server.openai.completions import completions
from runner.server.openai.embeddings import embeddings
from runner.server.routes import Path

PATHS = (
    Path("/v1/chat/completions", ("POST",), chat_completions, "inference"),
    Path("/v1/completions", ("POST",), completions, "inference"),
    Path("/v1/embeddings", ("POST",), embeddings, "inference"),
)
