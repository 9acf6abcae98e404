"""What one step of the engine gives."""

from __future__ import annotations

from dataclasses import dataclass, field

from runner.errors import HearthError
from runner.types import Delta, Embeddings


@dataclass(slots=True)
class EngineCounters:
    """Totals since the engine's start. cached_tokens: of admitted prompts, those that were not
    computed again."""

    steps: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cancelled: int = 0


@dataclass(slots=True)
class StepOutput:
    """Deltas in the order of the batch, requests that failed, embeddings that are complete; each
    with the id of its request."""

    deltas: list[tuple[str, Delta]] = field(default_factory=list)
    errors: list[tuple[str, HearthError]] = field(default_factory=list)
    embeddings: list[tuple[str, Embeddings]] = field(default_factory=list)
