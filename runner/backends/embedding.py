"""What the embedding backends have in common: whole texts in groups, and no generation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runner.backends.backend import (
    Backend,
    BackendError,
    Capacity,
    Row,
    SampledToken,
    Sampler,
)
from runner.types import OWN_FORM, EmbeddingForm, SamplingParams

_NO_GENERATION = "this model was loaded for embeddings and cannot generate text"


class EmbeddingBackend(Backend):
    """Keeps nothing between calls. A subclass computes groups of inputs."""

    def __init__(
        self, capacity: Capacity, *, step_tokens: int, max_inputs: int | None = None
    ) -> None:
        """step_tokens, max_inputs: the most of a group with several inputs."""
        self.capacity = capacity
        self._step_tokens = step_tokens
        self._max_inputs = max_inputs

    def embed(
        self, inputs: Sequence[Sequence[int]], form: EmbeddingForm = OWN_FORM
    ) -> list[list[float]]:
        max_tokens, vocabulary = self.capacity.context_length, self.capacity.vocabulary
        for tokens in inputs:
            if not 0 < len(tokens) <= max_tokens:
                raise BackendError(
                    f"an input of {len(tokens)} tokens; this model takes 1 to {max_tokens}"
                )
            if min(tokens) < 0 or max(tokens) >= vocabulary:
                raise BackendError(
                    f"a token outside of 0 to {vocabulary - 1}, which is all of the vocabulary"
                )
        groups = self._groups(inputs)
        return [vector for group in groups for vector in self._embed_group(group, form)]

    def _embed_group(
        self, group: Sequence[Sequence[int]], form: EmbeddingForm
    ) -> list[list[float]]:
        """The vectors of inputs that are computed together, or of their tokens. Raises
        BackendError."""
        raise NotImplementedError

    def _groups(self, inputs: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
        """Runs of inputs that fit in one step; an input that is longer stands alone."""
        group: list[Sequence[int]] = []
        size = 0
        for tokens in inputs:
            full = size + len(tokens) > self._step_tokens or len(group) == self._max_inputs
            if group and full:
                yield group
                group, size = [], 0
            group.append(tokens)
            size += len(tokens)
        if group:
            yield group

    def create_sampler(self, params: SamplingParams) -> Sampler:
        """Refused."""
        raise BackendError(_NO_GENERATION)

    def step(self, rows: Sequence[Row]) -> list[SampledToken]:
        """Refused."""
        raise BackendError(_NO_GENERATION)

    def share(self, source: int, target: int, length: int) -> None:
        """Refused."""
        raise BackendError(_NO_GENERATION)

    def trim(self, sequence: int, length: int) -> bool:
        """Nothing is kept, so nothing can be trimmed."""
        return False

    def release(self, sequence: int) -> None:
        """Nothing is kept."""

    def reset(self) -> None:
        """Nothing is kept."""
