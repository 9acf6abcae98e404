"""What encoders are put together from: layers whose tokens see the whole text, each half followed
by a norm of the sum.

Names are those of BERT's checkpoints (models/ has what differs). Knows no file and keeps nothing
between calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernels import ops
from kernels.ops import AttentionSpec
from runner.backends.torch.layers.linear import Linear

Tensor = Any
Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """Mean and variance norm over the last dimension (Ba et al., 2016)."""

    weight: Tensor
    bias: Tensor
    epsilon: float

    def __call__(self, x: Tensor) -> Tensor:
        """The normed x, in its shape and dtype."""
        return ops.layer_norm(x, self.weight, self.bias, self.epsilon)


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    """Attention, norm of the sum, feed-forward, norm of the sum. head: the width of a head."""

    head: int
    projections: Linear  # queries, keys and values, of the same width
    attention_output: Linear
    attention_norm: LayerNorm
    inner: Linear
    output: Linear
    output_norm: LayerNorm
    activation: Activation

    def __call__(self, x: Tensor, starts: Tensor) -> Tensor:
        """[T, hidden] of x [T, hidden]; starts int32 [S + 1]: where the texts begin."""
        heads = self.projections(x).unflatten(-1, (3, -1, self.head))
        query, key, value = heads.unbind(1)
        spec = AttentionSpec(self.head**-0.5, causal=False)
        seen = ops.attention(query, key, value, starts, spec).flatten(1)
        x = self.attention_norm(x + self.attention_output(seen))
        return self.output_norm(x + self.output(self.activation(self.inner(x))))


@dataclass(frozen=True, slots=True)
class Encoder:
    """word_embeddings [V, hidden]; position_embeddings [P, hidden], without those of padding;
    token_type_embedding [hidden]: of the first text, which all tokens are in."""

    word_embeddings: Tensor
    position_embeddings: Tensor
    token_type_embedding: Tensor
    norm: LayerNorm
    layers: Sequence[EncoderLayer]

    @property
    def max_tokens(self) -> int:
        """Most tokens of a text."""
        return len(self.position_embeddings)

    def forward(self, tokens: Tensor, starts: Tensor) -> Tensor:
        """The hidden states [T, hidden] of tokens int64 [T] of texts that begin at starts int32
        [S + 1], the last of which is T."""
        lengths = starts.diff()
        firsts = torch.repeat_interleave(starts[:-1], lengths)
        positions = torch.arange(len(tokens), device=tokens.device) - firsts
        x = self.norm(
            self.word_embeddings[tokens]
            + self.position_embeddings[positions]
            + self.token_type_embedding
        )
        for layer in self.layers:
            x = layer(x, starts)
        return x
