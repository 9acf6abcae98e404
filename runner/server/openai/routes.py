"""OpenAI's paths. /v1/models is Anthropic's too: see runner.server.anthropic.routes."""

from __future__ import annotations

from runner.server.openai.batches.handlers import (
    cancel_batch,
    create_batch,
    list_batches,
    show_batch,
)
from runner.server.openai.batches.wire import BatchRequest
from runner.server.openai.chat import chat_completions
from runner.server.openai.completions import completions
from runner.server.openai.embeddings import embeddings
from runner.server.openai.files.handlers import (
    delete_file,
    list_files,
    read_file,
    show_file,
    upload_file,
)
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
    Batch,
    Batches,
    ChatCompletion,
    Completion,
    DeletedFile,
    DeletedResponse,
    Embeddings,
    File,
    Files,
    InputItems,
    Response,
)
from runner.server.routes import Path
from runner.server.stream import EVENT_STREAM as SSE

BYTES = "application/octet-stream"

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
    Path("/v1/responses/{id}", ("GET",), show_response, "inference", None, Response, SSE),
    Path("/v1/responses/{id}", ("DELETE",), delete_response, "inference", gives=DeletedResponse),
    Path("/v1/responses/{id}/cancel", ("POST",), cancel_response, "inference", gives=Response),
    Path("/v1/responses/{id}/input_items", ("GET",), list_input, "inference", gives=InputItems),
    Path("/v1/embeddings", ("POST",), embeddings, "inference", EmbeddingRequest, Embeddings),
    Path("/v1/files", ("POST",), upload_file, "inference", "multipart/form-data", File),
    Path("/v1/files", ("GET",), list_files, "inference", gives=Files),
    Path("/v1/files/{id}", ("GET",), show_file, "inference", gives=File),
    Path("/v1/files/{id}", ("DELETE",), delete_file, "inference", gives=DeletedFile),
    Path("/v1/files/{id}/content", ("GET",), read_file, "inference", streams=BYTES),
    Path("/v1/batches", ("POST",), create_batch, "inference", BatchRequest, Batch),
    Path("/v1/batches", ("GET",), list_batches, "inference", gives=Batches),
    Path("/v1/batches/{id}", ("GET",), show_batch, "inference", gives=Batch),
    Path("/v1/batches/{id}/cancel", ("POST",), cancel_batch, "inference", gives=Batch),
)
