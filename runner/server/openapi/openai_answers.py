"""OpenAI's answers, for the description only."""

from __future__ import annotations

from typing import Any, Literal

from runner.server.openapi.answers import AnswerModel


class Usage(AnswerModel):
    """The tokens of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, Any] | None = None
    completion_tokens_details: dict[str, Any] | None = None


class ChatCall(AnswerModel):
    """A tool call: function and its arguments, or custom and its input, as type says."""

    id: str
    type: Literal["function", "custom"]
    function: dict[str, str] | None = None
    custom: dict[str, str] | None = None


class ChatAnswer(AnswerModel):
    """The message of a choice. reasoning_content: what a reasoning model thought first."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ChatCall] | None = None


class ChatChoice(AnswerModel):
    """One of n answers."""

    index: int
    message: ChatAnswer
    logprobs: dict[str, Any] | None
    finish_reason: str | None


class ChatCompletion(AnswerModel):
    """The answer to a conversation."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class CompletionChoice(AnswerModel):
    """One of n continuations."""

    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: str | None
    prompt_logprobs: list[dict[str, Any] | None] | None = None


class Completion(AnswerModel):
    """The continuation of a prompt."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class Embedding(AnswerModel):
    """A vector; a string where base64 was asked for."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Embeddings(AnswerModel):
    """One vector for each input."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: dict[str, int]


class Model(AnswerModel):
    """An installed model: OpenAI's fields, or Anthropic's for a request with anthropic-version."""

    id: str
    object: Literal["model"] | None = None
    created: int | None = None
    owned_by: str | None = None
    type: Literal["model"] | None = None
    display_name: str | None = None
    created_at: str | None = None


class Models(AnswerModel):
    """The installed models."""

    data: list[Model]
    object: Literal["list"] | None = None
    has_more: bool | None = None


class Response(AnswerModel):
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


class InputItems(AnswerModel):
    """What a response was asked."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    has_more: bool
    first_id: str | None
    last_id: str | None


class DeletedResponse(AnswerModel):
    """A response that is no more."""

    id: str
    object: Literal["response"]
    deleted: bool


class File(AnswerModel):
    """A stored file."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: Literal["processed"]


class Files(AnswerModel):
    """Stored files."""

    object: Literal["list"]
    data: list[File]
    has_more: bool
    first_id: str | None
    last_id: str | None


class DeletedFile(AnswerModel):
    """A file that is no more."""

    id: str
    object: Literal["file"]
    deleted: bool


class Batch(AnswerModel):
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


class Batches(AnswerModel):
    """Batches, the newest first."""

    object: Literal["list"]
    data: list[Batch]
    has_more: bool
    first_id: str | None
    last_id: str | None
