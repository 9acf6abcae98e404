"""What the daemon's native routes answer, as types for its client. Knows no HTTP."""

from __future__ import annotations

from typing import Any, TypedDict

JsonObject = dict[str, Any]


class ModelDetailsReply(TypedDict, total=False):
    """What a model is made of."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class InstalledModel(TypedDict, total=False):
    """A model of the store. size in bytes, modified_at in RFC 3339; fault: why it cannot be
    used."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: ModelDetailsReply
    fault: str


class RunningModel(TypedDict, total=False):
    """A model in memory. size and size_vram in bytes, expires_at in RFC 3339. shares_memory_of: the
    model in whose size its memory is counted."""

    name: str
    model: str
    size: int
    size_vram: int
    digest: str
    details: ModelDetailsReply
    expires_at: str
    context_length: int
    shares_memory_of: str


class ReplyMessage(TypedDict, total=False):
    """One message of a conversation."""

    role: str
    content: str
    images: list[str]
    thinking: str
    tool_calls: list[JsonObject]


class PromptProgressReply(TypedDict):
    """How far a prompt is computed, in tokens. processed counts those of the cache too."""

    total: int
    cache: int
    processed: int
    time_ms: int


class ReplyChunk(TypedDict, total=False):
    """One line of a streamed answer. Durations in nanoseconds; the last one has done."""

    model: str
    response: str
    thinking: str
    message: ReplyMessage
    done: bool
    done_reason: str
    total_duration: int
    load_duration: int
    prompt_eval_count: int
    prompt_eval_duration: int
    eval_count: int
    eval_duration: int
    cached_count: int
    limit: str
    messages_dropped: int
    shifted_tokens: int
    num_ctx: int
    prompt_progress: PromptProgressReply


class TaskProgress(TypedDict, total=False):
    """One line of a long task: what is being done, and how many bytes of it."""

    status: str
    digest: str
    total: int
    completed: int
    resumed: int
    model: str
    unit: str
