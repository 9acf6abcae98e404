"""Ollama's answers, for the description only."""

from __future__ import annotations

from typing import Any

from runner.server.openapi.answers import ResponseModel


class OllamaTimings(ResponseModel):
    """What every whole answer has; durations in nanoseconds."""

    model: str
    created_at: str
    done: bool
    done_reason: str | None = None
    total_duration: int | None = None
    load_duration: int | None = None
    prompt_eval_count: int | None = None
    prompt_eval_duration: int | None = None
    eval_count: int | None = None
    eval_duration: int | None = None


class OllamaGenerateResponse(OllamaTimings):
    """The continuation of a prompt."""

    response: str
    thinking: str | None = None
    context: list[int] | None = None


class OllamaMessage(ResponseModel):
    """What the model said."""

    role: str
    content: str
    thinking: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class OllamaChatResponse(OllamaTimings):
    """The answer to a conversation."""

    message: OllamaMessage


class OllamaEmbedResponse(ResponseModel):
    """One vector for each input."""

    model: str
    embeddings: list[list[float]]
    total_duration: int | None = None
    load_duration: int | None = None
    prompt_eval_count: int | None = None


class LegacyEmbedResponse(ResponseModel):
    """One vector."""

    embedding: list[float]


class OllamaModelDetails(ResponseModel):
    """What kind of model it is."""

    parent_model: str
    format: str
    family: str
    families: list[str] | None
    parameter_size: str
    quantization_level: str


class OllamaModelEntry(ResponseModel):
    """An installed model."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: OllamaModelDetails
    fault: str | None = None


class TagsResponse(ResponseModel):
    """The installed models."""

    models: list[OllamaModelEntry]


class RunningModelEntry(ResponseModel):
    """A model in memory. expires_at null: it stays."""

    name: str
    model: str
    digest: str
    size: int
    size_vram: int
    details: OllamaModelDetails
    expires_at: str | None
    context_length: int


class PsResponse(ResponseModel):
    """The models in memory."""

    models: list[RunningModelEntry]


class ShowResponse(ResponseModel):
    """Everything about one model."""

    license: str
    modelfile: str
    parameters: str
    template: str
    system: str
    details: OllamaModelDetails
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str
