"""What Ollama's routes answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired

from typing_extensions import TypedDict

from runner.replies import (
    OllamaMessage,
    OllamaModelDetails,
    OllamaModelEntry,
    OllamaTimings,
    RunningModelEntry,
)


class OllamaGenerateResponse(OllamaTimings):
    """The continuation of a prompt."""

    response: str
    thinking: NotRequired[str]
    context: NotRequired[Sequence[int]]


class OllamaChatResponse(OllamaTimings):
    """The answer to a conversation."""

    message: OllamaMessage


class OllamaEmbedResponse(TypedDict):
    """One vector for each input."""

    model: str
    embeddings: Sequence[Sequence[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class LegacyEmbedResponse(TypedDict):
    """One vector."""

    embedding: list[float]


class TagsResponse(TypedDict):
    """The installed models."""

    models: list[OllamaModelEntry]


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


class CloudStatus(TypedDict):
    """Whether models run elsewhere, and who said so."""

    disabled: bool
    source: str


class CloudStatusResponse(TypedDict):
    """The status of Ollama's cloud."""

    cloud: CloudStatus


class OllamaTensor(TypedDict):
    """A tensor of the model file. shape: its dimensions, the fastest first."""

    name: str
    type: str
    shape: list[int]


class ShowResponse(TypedDict):
    """All details of a model. weights: the digest of the model file; crashes: how it ended its
    worker again and again, null where it did not; adapters: the models that add LoRA adapters to
    it."""

    license: str
    modelfile: str
    parameters: str
    template: str
    system: str
    details: OllamaModelDetails
    model_info: dict[str, Any]
    tensors: list[OllamaTensor]
    capabilities: list[str]
    modified_at: str
    messages: list[dict[str, str]]
    projector_info: NotRequired[dict[str, Any]]
    digest: str
    weights: str
    size: int
    crashes: str | None
    perplexity: dict[str, Any] | None
    bits_per_weight: float | None
    memory: dict[str, Any] | None
    renderer: str
    parser: str
    requires: str
    draft: OllamaModelFile | None
    projector: OllamaModelFile | None
    adapters: list[str]
