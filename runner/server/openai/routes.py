"""OpenAI's paths. /v1/models is Anthropic's too: see runner.server.anthropic.routes."""

from __future__ import annotations

from runner.server.openai.answers import (
    BatchList,
    BatchObject,
    ChatCompletionResponse,
    CompletionResponse,
    DeletedFile,
    DeletedResponse,
    EmbeddingResponse,
    FileList,
    FileObject,
    InputItemList,
    ResponseObject,
)
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
from runner.server.openai.responses.wire import ResponsesRequest
from runner.server.openai.wire import ChatCompletionRequest, CompletionRequest, EmbeddingRequest
from runner.server.routes import RouteSpec
from runner.server.sse import EVENT_STREAM as SSE

BYTES = "application/octet-stream"

ROUTES = (
    RouteSpec(
        "/v1/chat/completions",
        ("POST",),
        chat_completions,
        "inference",
        ChatCompletionRequest,
        ChatCompletionResponse,
        SSE,
    ),
    RouteSpec(
        "/v1/completions",
        ("POST",),
        completions,
        "inference",
        CompletionRequest,
        CompletionResponse,
        SSE,
    ),
    RouteSpec(
        "/v1/responses",
        ("POST",),
        create_response,
        "inference",
        ResponsesRequest,
        ResponseObject,
        SSE,
    ),
    RouteSpec(
        "/v1/responses/{id}", ("GET",), show_response, "inference", None, ResponseObject, SSE
    ),
    RouteSpec(
        "/v1/responses/{id}", ("DELETE",), delete_response, "inference", gives=DeletedResponse
    ),
    RouteSpec(
        "/v1/responses/{id}/cancel", ("POST",), cancel_response, "inference", gives=ResponseObject
    ),
    RouteSpec(
        "/v1/responses/{id}/input_items", ("GET",), list_input, "inference", gives=InputItemList
    ),
    RouteSpec(
        "/v1/embeddings", ("POST",), embeddings, "inference", EmbeddingRequest, EmbeddingResponse
    ),
    RouteSpec("/v1/files", ("POST",), upload_file, "inference", "multipart/form-data", FileObject),
    RouteSpec("/v1/files", ("GET",), list_files, "inference", gives=FileList),
    RouteSpec("/v1/files/{id}", ("GET",), show_file, "inference", gives=FileObject),
    RouteSpec("/v1/files/{id}", ("DELETE",), delete_file, "inference", gives=DeletedFile),
    RouteSpec("/v1/files/{id}/content", ("GET",), read_file, "inference", streams=BYTES),
    RouteSpec("/v1/batches", ("POST",), create_batch, "inference", BatchRequest, BatchObject),
    RouteSpec("/v1/batches", ("GET",), list_batches, "inference", gives=BatchList),
    RouteSpec("/v1/batches/{id}", ("GET",), show_batch, "inference", gives=BatchObject),
    RouteSpec("/v1/batches/{id}/cancel", ("POST",), cancel_batch, "inference", gives=BatchObject),
)
