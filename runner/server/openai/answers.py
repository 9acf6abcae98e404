"""What OpenAI's routes answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from runner.server.timings import Timings

PromptLogprobs = list[dict[str, Any] | None]


class CompletionUsage(TypedDict):
    """The tokens of a request. normalized: the rules that changed its prompt, if any did."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]
    completion_tokens_details: NotRequired[dict[str, int]]
    normalized: NotRequired[list[str]]


class ChatToolCall(TypedDict):
    """A tool call: function and its arguments, or custom and its input, as type says."""

    id: str
    type: Literal["function", "custom"]
    function: NotRequired[dict[str, str]]
    custom: NotRequired[dict[str, str]]


class ChatCompletionMessage(TypedDict):
    """The message of a choice. reasoning_content: what a reasoning model thought first, under both
    names that clients look for."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning: NotRequired[str]
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ChatToolCall]]


class ChatChoice(TypedDict):
    """One of n answers."""

    index: int
    message: ChatCompletionMessage
    logprobs: dict[str, Any] | None
    finish_reason: str | None
    token_ids: NotRequired[list[int]]


class ChatCompletionResponse(TypedDict):
    """The answer to a conversation."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: CompletionUsage
    timings: NotRequired[Timings]
    truncated: NotRequired[dict[str, int]]
    prompt_token_ids: NotRequired[list[int]]
    prompt_logprobs: NotRequired[PromptLogprobs]


class TranscriptionResponse(TypedDict):
    """The text of a recording."""

    text: str
    usage: dict[str, Any]


class CompletionChoice(TypedDict):
    """One of n continuations."""

    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: str | None
    prompt_logprobs: NotRequired[PromptLogprobs]
    prompt_token_ids: NotRequired[list[int]]
    token_ids: NotRequired[list[int]]


class CompletionHeadFields(TypedDict):
    """What all events of one continuation have in common."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str


class CompletionResponse(CompletionHeadFields):
    """The continuation of a prompt."""

    choices: list[CompletionChoice]
    usage: CompletionUsage
    timings: NotRequired[Timings]


class InputTokens(TypedDict):
    """The number of tokens of a prompt."""

    object: Literal["chat.input_tokens", "response.input_tokens"]
    input_tokens: int


class EmbeddingObject(TypedDict):
    """A vector; a string where base64 was asked for."""

    object: Literal["embedding"]
    index: int
    embedding: Sequence[float] | str


class EmbeddingResponse(TypedDict):
    """One vector for each input."""

    object: Literal["list"]
    data: list[EmbeddingObject]
    model: str
    usage: dict[str, int]


class ModelCard(TypedDict):
    """An installed model. status: whether it is loaded. parent: the model to which this one adds
    LoRA adapters, null for others."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    parent: str | None
    aliases: list[str]
    capabilities: list[str]
    meta: dict[str, int]
    status: dict[str, str]


class ModelList(TypedDict):
    """The installed models."""

    object: Literal["list"]
    data: list[ModelCard]


ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class ResponseObject(TypedDict):
    """A response of the Responses API. output: messages, reasoning and function calls."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: ResponseStatus
    background: bool
    conversation: dict[str, str] | None
    error: dict[str, Any] | None
    frequency_penalty: float
    incomplete_details: dict[str, Any] | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str]
    model: str
    output: list[dict[str, Any]]
    parallel_tool_calls: bool
    presence_penalty: float
    previous_response_id: str | None
    prompt: dict[str, Any] | None
    prompt_cache_key: str | None
    reasoning: dict[str, str | None]
    safety_identifier: str | None
    service_tier: str
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: Any
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: str
    usage: dict[str, Any] | None
    user: str | None


class ListPage(TypedDict):
    """A part of a long list, and whether there is more of it."""

    object: Literal["list"]
    has_more: bool
    first_id: str | None
    last_id: str | None


class InputItemList(ListPage):
    """The input items of a response."""

    data: list[dict[str, Any]]


class DeletedResponse(TypedDict):
    """A deleted response."""

    id: str
    object: Literal["response"]
    deleted: bool


class CompactedResponse(TypedDict):
    """A compacted conversation."""

    id: str
    object: Literal["response.compaction"]
    created_at: int
    output: list[dict[str, Any]]
    usage: dict[str, Any]


class ConversationObject(TypedDict):
    """A stored conversation."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, str]


class DeletedConversation(TypedDict):
    """A deleted conversation."""

    id: str
    object: Literal["conversation.deleted"]
    deleted: bool


ConversationItem = dict[str, Any]


class ConversationItemList(ListPage):
    """Items of a conversation."""

    data: list[ConversationItem]


class FileObject(TypedDict):
    """A stored file."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: Literal["processed"]
    status_details: None


class FileList(ListPage):
    """Stored files."""

    data: list[FileObject]


class DeletedFile(TypedDict):
    """A deleted file."""

    id: str
    object: Literal["file"]
    deleted: bool


class UploadObject(TypedDict):
    """An upload in parts. file: the resulting file."""

    id: str
    object: Literal["upload"]
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: str
    status: Literal["pending", "completed", "cancelled", "expired"]
    file: FileObject | None


class UploadPart(TypedDict):
    """A part of a file."""

    id: str
    object: Literal["upload.part"]
    created_at: int
    upload_id: str


BatchStatus = Literal[
    "validating", "in_progress", "finalizing", "completed",
    "failed", "expired", "cancelling", "cancelled",
]  # fmt: skip


class BatchObject(TypedDict):
    """A batch. Its files are named once it has ended."""

    id: str
    object: Literal["batch"]
    endpoint: str
    model: str | None
    errors: dict[str, Any] | None
    input_file_id: str
    completion_window: str
    status: BatchStatus
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    expires_at: int
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: dict[str, int]
    usage: dict[str, Any] | None
    metadata: dict[str, str] | None


class BatchList(ListPage):
    """Batches, the newest first."""

    data: list[BatchObject]


class VectorStoreObject(TypedDict):
    """A vector store. embedding_model: hearth's own, the model that its vectors are of."""

    id: str
    object: Literal["vector_store"]
    name: str
    created_at: int
    last_active_at: int
    status: Literal["expired", "in_progress", "completed"]
    usage_bytes: int
    file_counts: dict[str, int]
    metadata: dict[str, str]
    expires_after: dict[str, Any] | None
    expires_at: int | None
    embedding_model: str


class VectorStoreList(ListPage):
    """Vector stores."""

    data: list[VectorStoreObject]


class DeletedVectorStore(TypedDict):
    """A deleted vector store."""

    id: str
    object: Literal["vector_store.deleted"]
    deleted: bool


class VectorStoreFile(TypedDict):
    """A file of a vector store."""

    id: str
    object: Literal["vector_store.file"]
    vector_store_id: str
    created_at: int
    status: Literal["in_progress", "completed", "cancelled", "failed"]
    last_error: dict[str, str] | None
    usage_bytes: int
    attributes: dict[str, Any]
    chunking_strategy: dict[str, Any]


class VectorStoreFileList(ListPage):
    """Files of a vector store."""

    data: list[VectorStoreFile]


class DeletedVectorStoreFile(TypedDict):
    """A file removed from its vector store."""

    id: str
    object: Literal["vector_store.file.deleted"]
    deleted: bool


class VectorStoreFileContent(TypedDict):
    """The chunks of a file."""

    object: Literal["vector_store.file_content.page"]
    data: list[dict[str, str]]
    has_more: bool
    next_page: None


class VectorStoreFileBatch(TypedDict):
    """A batch of files."""

    id: str
    object: Literal["vector_store.files_batch"]
    vector_store_id: str
    created_at: int
    status: Literal["in_progress", "completed", "cancelled", "failed"]
    file_counts: dict[str, int]


class VectorStoreSearchResults(TypedDict):
    """Search results, the nearest first."""

    object: Literal["vector_store.search_results.page"]
    search_query: list[str]
    data: list[dict[str, Any]]
    has_more: bool
    next_page: None
