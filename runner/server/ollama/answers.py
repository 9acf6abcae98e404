"""What Ollama's routes answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from runner.types import Limit


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
    messages_dropped: NotRequired[int]
    shifted_tokens: NotRequired[int]
    num_ctx: NotRequired[int]
    prompt_progress: NotRequired[dict[str, int]]
    logprobs: NotRequired[list[dict[str, Any]]]


class OllamaGenerateResponse(OllamaTimings):
    """The continuation of a prompt."""

    response: str
    thinking: NotRequired[str]
    context: NotRequired[Sequence[int]]


class OllamaMessage(TypedDict):
    """What the model said."""

    role: str
    content: str
    thinking: NotRequired[str]
    tool_calls: NotRequired[list[dict[str, Any]]]


class OllamaChatResponse(OllamaTimings):
    """The answer to a conversation."""

    message: OllamaMessage


class OllamaEmbedResponse(TypedDict):
    """One vector for each input."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class LegacyEmbedResponse(TypedDict):
    """One vector."""

    embedding: list[float]


class OllamaModelDetails(TypedDict):
    """What kind of model it is."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class OllamaModelEntry(TypedDict):
    """An installed model."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: OllamaModelDetails
    fault: NotRequired[str]


class TagsResponse(TypedDict):
    """The installed models."""

    models: list[OllamaModelEntry]


class RunningModelEntry(TypedDict):
    """A model in memory. expires_at null: it stays. stats null: its worker does not answer.
    context_length: that of its last request. shares_memory_of: the model whose weights and cache it
    uses; size and size_vram are 0 then, for they are counted there."""

    name: str
    model: str
    digest: str
    size: int
    size_vram: int
    details: OllamaModelDetails
    expires_at: str | None
    context_length: int
    pool_tokens: int
    state: Literal["loaded", "loading"]
    requests: int
    stats: dict[str, Any] | None
    shares_memory_of: NotRequired[str]


class PsResponse(TypedDict):
    """The models in memory."""

    models: list[RunningModelEntry]


class OllamaModelFile(TypedDict):
    """A file beside the model's own. fault: why a projector cannot be used."""

    architecture: str
    parameter_size: str | None
    quantization_level: str | None
    size: int
    fault: NotRequired[str | None]


class ShowResponse(TypedDict):
    """Everything about one model. weights: the digest of the model file."""

    license: str
    modelfile: str
    parameters: str
    template: str
    system: str
    details: OllamaModelDetails
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str
    messages: list[dict[str, str]]
    projector_info: NotRequired[dict[str, Any]]
    digest: str
    weights: str
    size: int
    bits_per_weight: float | None
    memory: dict[str, Any] | None
    renderer: str
    parser: str
    requires: str
    draft: OllamaModelFile | None
    projector: OllamaModelFile | None
