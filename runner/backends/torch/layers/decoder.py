"""What decoders are put together from: attention, gated feed-forward, the order of a layer, and
the stack of layers between embedding and logits.

Each architecture's own file (models/) says which of them it takes and how it differs; names are
those of Hugging Face checkpoints. Knows no file and no cache, only the attention step it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from runner.backends.torch.attention.paged import AttentionConfig, AttentionStep
from runner.backends.torch.config import DecoderShape
from runner.backends.torch.layers.linear import Linear, PlacedVectors, RmsNorm

Tensor = Any
FeedForward = Callable[[Tensor], Tensor]  # [T, hidden] -> [T, hidden]
Activation = Callable[[Tensor], Tensor]  # [T, 2N], gate and up -> [T, N]


@dataclass(frozen=True, slots=True)
class SelfAttention:
    """Self-attention of one layer. key_norm and query_norm: of each head, before it turns."""

    layer: int
    shape: DecoderShape
    projections: Linear
    output: Linear
    config: AttentionConfig
    query_norm: RmsNorm | None = None
    key_norm: RmsNorm | None = None

    def __call__(self, x: Tensor, step: AttentionStep) -> Tensor:
        """[T, hidden] of x [T, hidden]; the step keeps keys and values."""
        heads, heads_kv = self.shape.heads, self.shape.heads_kv
        projected = self.projections(x).view(len(x), -1, self.shape.head)
        query, key = projected[:, :heads], projected[:, heads : heads + heads_kv]
        value = projected[:, heads + heads_kv :]
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        return self.output(step.attend(self.layer, query, key, value, self.config).flatten(1))


@dataclass(frozen=True, slots=True)
class GatedFeedForward:
    """down(activation(gate) * up), gate and up in one map."""

    gate_up: Linear
    down: Linear
    activation: Activation

    def __call__(self, x: Tensor) -> Tensor:
        """[T, hidden] of x [T, hidden]."""
        return self.down(self.activation(self.gate_up(x)))


class TransformerLayer(Protocol):
    """One layer. The sum of what came before goes along beside the newest part of it, so that
    adding it and taking the norm is one operation."""

    def __call__(
        self, x: Tensor, residual: Tensor | None, step: AttentionStep
    ) -> tuple[Tensor, Tensor]:
        """(the layer's own output, the sum up to it), both [T, hidden]."""


@dataclass(frozen=True, slots=True)
class PreNormLayer(TransformerLayer):
    """Norm, attention, norm, feed-forward, each added to the sum."""

    input_norm: RmsNorm
    attention: SelfAttention
    feed_forward_norm: RmsNorm
    feed_forward: FeedForward

    def __call__(
        self, x: Tensor, residual: Tensor | None, step: AttentionStep
    ) -> tuple[Tensor, Tensor]:
        x, residual = add_norm(self.input_norm, x, residual)
        x, residual = self.feed_forward_norm.add(self.attention(x, step), residual)
        return self.feed_forward(x), residual


@dataclass(frozen=True, slots=True)
class SandwichLayer(TransformerLayer):
    """As PreNormLayer, with a norm behind attention and feed-forward too."""

    input_norm: RmsNorm
    attention: SelfAttention
    attention_norm: RmsNorm
    feed_forward_norm: RmsNorm
    feed_forward: FeedForward
    output_norm: RmsNorm

    def __call__(
        self, x: Tensor, residual: Tensor | None, step: AttentionStep
    ) -> tuple[Tensor, Tensor]:
        x, residual = add_norm(self.input_norm, x, residual)
        x = self.attention_norm(self.attention(x, step))
        x, residual = self.feed_forward_norm.add(x, residual)
        return self.output_norm(self.feed_forward(x)), residual


class Embedding(Protocol):
    """What gives the first layer its states."""

    def __call__(self, tokens: Tensor, vectors: Sequence[PlacedVectors] = ()) -> Tensor:
        """The states [T, hidden] of tokens [T], with vectors in their places."""


class LanguageModel(Protocol):
    """What the files of models/ define."""

    def forward(
        self, tokens: Tensor, step: AttentionStep, vectors: Sequence[PlacedVectors] = ()
    ) -> Tensor:
        """The hidden states [T, hidden], after the last norm, of tokens [T]."""

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 [R, vocabulary] of hidden states [R, hidden]."""


@dataclass(frozen=True, slots=True)
class Decoder(LanguageModel):
    """Embedding, layers, norm, head. softcap: cap * tanh(logit / cap)."""

    embedding: Embedding
    layers: Sequence[TransformerLayer]
    norm: RmsNorm
    head: Linear
    softcap: float | None = None

    def forward(
        self, tokens: Tensor, step: AttentionStep, vectors: Sequence[PlacedVectors] = ()
    ) -> Tensor:
        x, residual = run_layers(self.embedding, self.layers, tokens, step, vectors)
        return add_norm(self.norm, x, residual)[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 [R, vocabulary] of hidden states [R, hidden]."""
        logits = self.head(hidden).float()
        return logits if self.softcap is None else (logits / self.softcap).tanh() * self.softcap


def run_layers(
    embedding: Embedding,
    layers: Sequence[TransformerLayer],
    tokens: Tensor,
    step: AttentionStep,
    vectors: Sequence[PlacedVectors] = (),
) -> tuple[Tensor, Tensor | None]:
    """(what the last layer gives, the sum up to it), both [T, hidden], of tokens [T]; of ranks that
    share the tokens of a step, each has its rows of them."""
    x, residual = embedding(tokens, vectors), None
    for layer in layers:
        x, residual = layer(x, residual, step)
    return x, residual


def add_norm(norm: RmsNorm, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
    """(the norm of the sum, the sum) of x and the residual."""
    return (norm(x), x) if residual is None else norm.add(x, residual)
