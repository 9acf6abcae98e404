"""Embeddings on torch: whole texts through an encoder, several at a time, and one vector of each.

Knows pooling and normalisation; keeps nothing between calls and generates no text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NoReturn

import torch

from registry.formats.gguf import GgufHeader
from runner.backends.backend import BackendError, Capacity, Row, SavedState
from runner.backends.torch.layers.encoder import Encoder
from runner.errors import ModelLoadFailed
from runner.types import SamplingParams

Tensor = Any
Pooling = Callable[[Tensor, Tensor], Tensor]  # states [T, N], starts [S + 1] -> [S, N]


class TorchEmbeddingBackend:
    """See runner.backends.backend.Backend; only embed and close do something."""

    def __init__(self, model: Encoder, capacity: Capacity, pooling: Pooling, device: Any) -> None:
        self.capacity = capacity
        self._model: Encoder | None = model
        self._pooling = pooling
        self._device = device

    def embed(self, inputs: Sequence[Sequence[int]]) -> list[list[float]]:
        """See Backend.embed."""
        for tokens in inputs:
            self._check(tokens)
        vectors: list[list[float]] = []
        with torch.inference_mode():
            for group in self._groups(inputs):
                vectors.extend(self._embed_group(group))
        return vectors

    def _check(self, tokens: Sequence[int]) -> None:
        longest, vocabulary = self.capacity.context_length, self.capacity.vocabulary
        if not 0 < len(tokens) <= longest:
            raise BackendError(f"an input of {len(tokens)} tokens; this model takes 1 to {longest}")
        if min(tokens) < 0 or max(tokens) >= vocabulary:
            raise BackendError(
                f"a token outside of 0 to {vocabulary - 1}, which is all of the vocabulary"
            )

    def _groups(self, inputs: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
        """Runs of inputs that fit in one step; an input that is longer stands alone."""
        group: list[Sequence[int]] = []
        size = 0
        for tokens in inputs:
            if group and size + len(tokens) > self.capacity.batch_tokens:
                yield group
                group, size = [], 0
            group.append(tokens)
            size += len(tokens)
        if group:
            yield group

    def _embed_group(self, group: Sequence[Sequence[int]]) -> list[list[float]]:
        assert self._model is not None
        tokens = torch.tensor([token for each in group for token in each], device=self._device)
        lengths = torch.tensor([0, *map(len, group)])
        starts = lengths.cumsum(0).int().to(self._device)
        try:
            states = self._model.forward(tokens, starts)
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise BackendError(f"no memory for inputs of {len(tokens)} tokens: {error}") from error
        vectors = self._pooling(states.float(), starts)
        sizes = vectors.norm(dim=-1, keepdim=True)
        if not bool((sizes.isfinite() & (sizes > 0)).all()):
            raise BackendError("the model computed no usable embedding (NaN or all zero)")
        found: list[list[float]] = (vectors / sizes).tolist()
        return found

    def create_sampler(self, params: SamplingParams) -> NoReturn:
        """Refused."""
        _refuse()

    def step(self, rows: Sequence[Row]) -> NoReturn:
        """Refused."""
        _refuse()

    def share(self, source: int, target: int, length: int) -> NoReturn:
        """Refused."""
        _refuse()

    def merge(self, source: int, target: int, length: int) -> NoReturn:
        """Refused."""
        _refuse()

    def trim(self, sequence: int, length: int) -> bool:
        """Nothing is kept, so nothing can be trimmed."""
        return False

    def release(self, sequence: int) -> None:
        """Nothing is kept."""

    def state_bytes(self, sequence: int) -> int:
        """Nothing is kept."""
        return 0

    def save(self, sequence: int) -> NoReturn:
        """Refused."""
        _refuse()

    def load(self, state: SavedState, sequence: int) -> NoReturn:
        """Refused."""
        _refuse()

    def reset(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """See Backend.close. Calling it twice is allowed."""
        self._model = None


def pooling_of(header: GgufHeader) -> Pooling:
    """How the file says that a text's states become one; the mean where it does not. Raises
    ModelLoadFailed for a way that is not known."""
    kind = header.architecture_value("pooling_type")
    if kind is None:
        return _mean
    if kind not in _KINDS:
        raise ModelLoadFailed(
            f"{header.path.name}: pooling_type {kind} is not supported by the backend torch, only"
            " 1 (mean), 2 (first token) and 3 (last token). Use the backend llamacpp"
        )
    return _KINDS[kind]


def _mean(states: Tensor, starts: Tensor) -> Tensor:
    lengths = starts.diff().long()
    owners = torch.repeat_interleave(torch.arange(len(lengths), device=states.device), lengths)
    sums = states.new_zeros(len(lengths), states.shape[1]).index_add_(0, owners, states)
    return sums / lengths[:, None]


def _first(states: Tensor, starts: Tensor) -> Tensor:
    return states[starts[:-1].long()]


def _last(states: Tensor, starts: Tensor) -> Tensor:
    return states[starts[1:].long() - 1]


# By llama.cpp's numbers (enum llama_pooling_type)
_KINDS: Final[Mapping[int, Pooling]] = MappingProxyType({1: _mean, 2: _first, 3: _last})


def _refuse() -> NoReturn:
    raise BackendError("this model was loaded for embeddings; it generates no text")
