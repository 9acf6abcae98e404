"""OpenAI's answers, for the description only."""

from __future__ import annotations

from typing import Any, Literal

from runner.server.openapi.answers import ResponseModel


class CompletionUsage(ResponseModel):
    """The tokens of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, Any] | None = None
    completion_tokens_details: dict[str, Any] | None = None


class ChatToolCall(ResponseModel):
    """A tool call: function and its arguments, or custom and its input, as type says."""

    id: str
    type: Literal["function", "custom"]
    function: dict[str, str] | None = None
    custom: dict[str, str] | None = None


class ChatCompletionMessage(ResponseModel):
    """The message of a choice. reasoning_content: what a reasoning model thought first."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ChatToolCall] | None = None


class ChatChoice(ResponseModel):
    """One of n answers."""

    index: int
    message: ChatCompletionMessage
    logprobs: dict[str, Any] | None
    finish_reason: str | None


class ChatCompletionResponse(ResponseModel):
    """The answer to a conversation."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: CompletionUsage


class CompletionChoice(ResponseModel):
    """One of n continuations."""

    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: str | None
    prompt_logprobs: list[dict[str, Any] | None] | None = None


class CompletionResponse(ResponseModel):
    """The continuation of a prompt."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage


class EmbeddingObject(ResponseModel):
    """A vector; a string where base64 was asked for."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingResponse(ResponseModel):
    """One vector for each input."""

    object: Literal["list"]
    data: list[EmbeddingObject]
    model: str
    usage: dict[str, int]


class ModelCard(ResponseModel):
    """An installed model: OpenAI's fields, or Anthropic's for a request with anthropic-version."""

    id: str
    object: Literal["model"] | None = None
    created: int | None = None
    owned_by: str | None = None
    type: Literal["model"] | None = None
    display_name: str | None = None
    created_at: str | None = None


class ModelList(ResponseModel):
    """The installed models."""

    data: list[ModelCard]
    object: Literal["list"] | None = None
    has_more: bool | None = None


class ResponseObject(ResponseModel):
    """A response of the Responses API. output: messages, reasoning and function calls."""

    id: str
    object: Literal["response"]
    created_at: float
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    model: str
    output: list[dict[str, Any]]
    error: dict[str, Any] | None
    incomplete_details: dict[str, Any] | None
    usage: dict[str, Any] | None


class InputItemList(ResponseModel):
    """What a response was asked."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    has_more: bool
    first_id: str | None
    last_id: str | None


class DeletedResponse(ResponseModel):
    """A response that is no more."""

    id: str
    object: Literal["response"]
    deleted: bool


class FileObject(ResponseModel):
    """A stored file."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: Literal["processed"]


class FileList(ResponseModel):
    """Stored files."""

    object: Literal["list"]
    data: list[FileObject]
    has_more: bool
    first_id: str | None
    last_id: str | None


class DeletedFile(ResponseModel):
    """A file that is no more."""

    id: str
    object: Literal["file"]
    deleted: bool


class BatchObject(ResponseModel):
    """A batch. Its files are named once it has ended."""

    id: str
    object: Literal["batch"]
    endpoint: str
    input_file_id: str
    completion_window: str
    status: Literal[
        "validating",
        "in_progress",
        "finalizing",
        "completed",
        "failed",
        "expired",
        "cancelling",
        "cancelled",
    ]
    created_at: int
    expires_at: int
    request_counts: dict[str, int]
    errors: dict[str, Any] | None
    output_file_id: str | None
    error_file_id: str | None
    metadata: dict[str, str] | None


class BatchList(ResponseModel):
    """Batches, the newest first."""

    object: Literal["list"]
    data: list[BatchObject]
    has_more: bool
    first_id: str | None
    last_id: str | None
