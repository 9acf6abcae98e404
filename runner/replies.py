"""What the daemon's native routes answer: for the server, and for its client. Knows no HTTP."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from runner.types import Limit

JsonObject = dict[str, Any]


class OllamaModelDetails(TypedDict):
    """What kind of model it is."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str
    context_length: NotRequired[int]
    embedding_length: NotRequired[int]


class OllamaModelEntry(TypedDict):
    """An installed model. crashes: how it ended its worker again and again."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: OllamaModelDetails
    capabilities: list[str]
    fault: NotRequired[str]
    crashes: NotRequired[str]


class DeviceEntry(TypedDict):
    """What of a model is planned for a device, in bytes. shared: it is memory of the machine."""

    name: str
    size: int
    shared: bool


class RunningModelEntry(TypedDict):
    """A model in memory. devices: what of size_vram is where; left out where there is none.
    expires_at in centuries: it stays. stats null: its worker does not answer. context_length: that
    of its last request. pool_tokens: what the cache holds now, which grows as conversations need
    it. quantize: what its weights became while it was loaded. shares_memory_of: the model whose
    weights and cache it uses; size and size_vram are 0 then, for they are counted there."""

    name: str
    model: str
    digest: str
    size: int
    size_vram: int
    details: OllamaModelDetails
    expires_at: str
    context_length: int
    pool_tokens: int
    state: Literal["loaded", "loading"]
    requests: int
    stats: dict[str, Any] | None
    shares_memory_of: NotRequired[str]
    quantize: NotRequired[str]
    devices: NotRequired[list[DeviceEntry]]


class OllamaMessage(TypedDict):
    """What the model said."""

    role: str
    content: str
    thinking: NotRequired[str]
    tool_calls: NotRequired[list[dict[str, Any]]]


class ReplyMessage(OllamaMessage):
    """A message as the client sends it back."""

    images: NotRequired[list[str]]
    tool_name: NotRequired[str]
    tool_call_id: NotRequired[str]


class PromptProgressReply(TypedDict):
    """How far a prompt is computed, in tokens. processed counts those of the cache too."""

    total: int
    cache: int
    processed: int
    time_ms: int


class OllamaTimings(TypedDict):
    """What every whole answer has; durations in nanoseconds. num_ctx: the context in use, where a
    longer one was asked for than the model has."""

    model: str
    created_at: str
    done: bool
    done_reason: NotRequired[str]
    total_duration: NotRequired[int]
    load_duration: NotRequired[int]
    prompt_eval_count: NotRequired[int]
    prompt_eval_duration: NotRequired[int]
    eval_count: NotRequired[int]
    eval_duration: NotRequired[int]
    cached_count: NotRequired[int]
    limit: NotRequired[Limit]
    truncated: NotRequired[bool]
    messages_dropped: NotRequired[int]
    tokens_dropped: NotRequired[int]
    shifted_tokens: NotRequired[int]
    num_ctx: NotRequired[int]
    normalized: NotRequired[list[str]]
    prompt_progress: NotRequired[PromptProgressReply]
    logprobs: NotRequired[list[dict[str, Any]]]


class ReplyChunk(OllamaTimings, total=False):
    """One line of a streamed answer, of a prompt or of a conversation. The last one has done."""

    response: str
    thinking: str
    message: ReplyMessage


class TaskProgress(TypedDict, total=False):
    """One line of a long task: what is being done, and how many bytes of it."""

    status: str
    digest: str
    total: int
    completed: int
    resumed: int
    model: str
    unchecked: str
    unit: str
