"""OpenAI's paths. /v1/models is Anthropic's too: see runner.server.anthropic.routes."""

from __future__ import annotations

from runner.server.openai.chat import chat_completions
from runner.server.openai.completions import completions
from runner.server.openai.embeddings import embeddings
from runner.server.openai.responses.handlers import (
    cancel_response,
    create_response,
    delete_response,
    list_input,
    show_response,
)
from runner.server.openai.responses.wire import ResponseRequest
from runner.server.openai.wire import ChatRequest, CompletionRequest, EmbeddingRequest
from runner.server.openapi.openai_answers import (
    ChatCompletion,
    Completion,
    DeletedResponse,
    Embeddings,
    InputItems,
    Response,
)
from runner.server.routes import Path
from runner.server.stream import EVENT_STREAM as SSE

PATHS = (
    Path(
        "/v1/chat/completions",
        ("POST",),
        chat_completions,
        "inference",
        ChatRequest,
        ChatCompletion,
        SSE,
    ),
    Path(
        "/v1/completions", ("POST",), completions, "inference", CompletionRequest, Completion, SSE
    ),
    Path("/v1/responses", ("POST",), create_response, "inference", ResponseRequest, Response, SSE),
    Path("/v1/responses/{id}", ("GET",), show_response, "inference", gives=Response),
    Path("/v1/responses/{id}", ("DELETE",), delete_response, "inference", gives=DeletedResponse),
    Path("/v1/responses/{id}/cancel", ("POST",), cancel_response, "inference", gives=Response),
    Path("/v1/responses/{id}/input_items", ("GET",), list_input, "inference", gives=InputItems),
    Path("/v1/embeddings", ("POST",), embeddings, "inference", EmbeddingRequest, Embeddings),
)
