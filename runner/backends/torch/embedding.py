"""Embeddings on torch: whole texts through an encoder, several at a time, and one vector of each.

Knows pooling and normalisation; keeps nothing between calls and generates no text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import torch

from registry.formats.gguf import GgufHeader
from runner.backends.backend import BackendError, Capacity
from runner.backends.embedding import EmbeddingBackend
from runner.backends.torch.layers.encoder import Encoder
from runner.errors import ModelLoadFailed
from runner.types import EmbeddingForm

Tensor = Any
Pooling = Callable[[Tensor, Tensor], Tensor]  # states [T, N], starts [S + 1] -> [S, N] or [T, N]


class TorchEmbeddingBackend(EmbeddingBackend):
    """An encoder and what makes one vector of its states."""

    def __init__(self, model: Encoder, capacity: Capacity, pooling: Pooling, device: Any) -> None:
        super().__init__(capacity, step_tokens=capacity.batch_tokens)
        self._model = model
        self._pooling = pooling
        self._device = device

    def _embed_group(
        self, group: Sequence[Sequence[int]], form: EmbeddingForm
    ) -> list[list[float]]:
        tokens = torch.tensor([token for each in group for token in each], device=self._device)
        lengths = torch.tensor([0, *map(len, group)])
        starts = lengths.cumsum(0).int().to(self._device)
        try:
            with torch.inference_mode():
                pooling = self._pooling if form.pooling is None else _BY_NAME[form.pooling]
                vectors = pooling(self._model.forward(tokens, starts).float(), starts)
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise BackendError(
                f"not enough memory for inputs of {len(tokens)} tokens: {error}"
            ) from error
        sizes = vectors.norm(dim=-1, keepdim=True)
        if not bool((sizes.isfinite() & (sizes > 0)).all()):
            raise BackendError("the model produced an invalid embedding (NaN or all zeros)")
        found: list[list[float]] = (vectors / sizes if form.normalize else vectors).tolist()
        return found


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


def _each(states: Tensor, _starts: Tensor) -> Tensor:
    return states


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
_BY_NAME: Final[Mapping[str, Pooling]] = MappingProxyType(
    {"none": _each, "mean": _mean, "cls": _first, "last": _last}
)
