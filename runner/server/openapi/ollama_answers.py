"""Ollama's answers, for the description only."""

from __future__ import annotations

from typing import Any

from runner.server.openapi.answers import AnswerModel


class Timed(AnswerModel):
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


class Generated(Timed):
    """The continuation of a prompt."""

    response: str
    thinking: str | None = None
    context: list[int] | None = None


class SaidMessage(AnswerModel):
    """What the model said."""

    role: str
    content: str
    thinking: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class Said(Timed):
    """The answer to a conversation."""

    message: SaidMessage


class Embedded(AnswerModel):
    """One vector for each input."""

    model: str
    embeddings: list[list[float]]
    total_duration: int | None = None
    load_duration: int | None = None
    prompt_eval_count: int | None = None


class EmbeddedOne(AnswerModel):
    """One vector."""

    embedding: list[float]


class Details(AnswerModel):
    """What kind of model it is."""

    parent_model: str
    format: str
    family: str
    families: list[str] | None
    parameter_size: str
    quantization_level: str


class Tag(AnswerModel):
    """An installed model."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: Details
    fault: str | None = None


class Tags(AnswerModel):
    """The installed models."""

    models: list[Tag]


class Loaded(AnswerModel):
    """A model in memory. expires_at null: it stays."""

    name: str
    model: str
    digest: str
    size: int
    size_vram: int
    details: Details
    expires_at: str | None
    context_length: int


class LoadedModels(AnswerModel):
    """The models in memory."""

    models: list[Loaded]


class Shown(AnswerModel):
    """Everything about one model."""

    license: str
    modelfile: str
    parameters: str
    template: str
    system: str
    details: Details
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str
