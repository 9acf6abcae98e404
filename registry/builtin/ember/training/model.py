"""The network: a small Llama (RMSNorm, RoPE, SwiGLU, grouped queries, tied embeddings) for training.

Owns the shapes and the forward pass. Knows nothing of text, GGUF or the training loop.
Rotary pairs are adjacent dimensions (2i, 2i+1), as llama.cpp's `llama` architecture wants them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the network; dimensions are multiples of 256 so that every GGUF block format fits."""

    vocabulary: int = 4096
    width: int = 256
    layers: int = 8
    heads: int = 4
    key_value_heads: int = 2
    feed_forward: int = 768
    rope_base: float = 10_000.0
    context: int = 2048
    norm_epsilon: float = 1e-5

    @property
    def head_width(self) -> int:
        return self.width // self.heads


def rotary_angles(shape: Shape, length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotation angles, each `[length, head_width / 2]` fp32."""
    exponents = torch.arange(0, shape.head_width, 2).float() / shape.head_width
    angles = torch.arange(length).float()[:, None] * shape.rope_base**-exponents[None, :]
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate adjacent pairs of `x` `[batch, tokens, heads, head_width]` by position (Su et al. 2021)."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    cosines, sines = cosines[:, None, :].to(x.dtype), sines[:, None, :].to(x.dtype)
    turned = (even * cosines - odd * sines, even * sines + odd * cosines)
    return torch.stack(turned, dim=-1).flatten(-2)


class Attention(nn.Module):
    """Causal self-attention with fewer key-value heads than query heads."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        key_value_width = shape.key_value_heads * shape.head_width
        self.query = nn.Linear(shape.width, shape.width, bias=False)
        self.key = nn.Linear(shape.width, key_value_width, bias=False)
        self.value = nn.Linear(shape.width, key_value_width, bias=False)
        self.output = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        """Mix `x` `[batch, tokens, width]` over earlier tokens; same shape out."""
        head_width = self.shape.head_width
        query = rotate(self.query(x).unflatten(-1, (-1, head_width)), cosines, sines)
        key = rotate(self.key(x).unflatten(-1, (-1, head_width)), cosines, sines)
        value = self.value(x).unflatten(-1, (-1, head_width))
        share = self.shape.heads // self.shape.key_value_heads
        key, value = (t.repeat_interleave(share, dim=2) for t in (key, value))
        mixed = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True
        )
        result: Tensor = self.output(mixed.transpose(1, 2).flatten(-2))
        return result


class FeedForward(nn.Module):
    """SwiGLU (Shazeer 2020)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.up = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.down = nn.Linear(shape.feed_forward, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return result


class Block(nn.Module):
    """One pre-norm layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.attention = Attention(shape)
        self.feed_forward_norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.feed_forward = FeedForward(shape)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cosines, sines)
        result: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return result


class Network(nn.Module):
    """Token ids in, hidden states or logits out.

    The embedding of a token is a free vector plus the sum of the vectors of its features (its letters by
    place, its leading space, its capital). Training on features lets " lamp", "lamp" and "Lamp" share what is
    learned, and lets the network read the letters of a token. Export folds the sum into one plain matrix.
    """

    features: Tensor

    def __init__(self, shape: Shape, features: Tensor) -> None:
        """`features` `[vocabulary, slots]` int64: feature ids per token, 0 = none."""
        super().__init__()
        self.shape = shape
        self.register_buffer("features", features, persistent=True)
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.feature = nn.EmbeddingBag(int(features.max()) + 1, shape.width, mode="sum", padding_idx=0)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        cosines, sines = rotary_angles(shape, shape.context)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)
        self.initialise()

    def initialise(self) -> None:
        """Draw the starting weights; layers that write to the residual stream start at zero."""
        nn.init.normal_(self.token.weight, std=0.02)
        nn.init.normal_(self.feature.weight, std=0.02)
        with torch.no_grad():
            self.feature.weight[0].zero_()
        for block in self.blocks:
            assert isinstance(block, Block)
            for name, weight in block.named_parameters():
                if weight.ndim != 2:
                    continue
                if name.endswith(("output.weight", "down.weight")):
                    nn.init.zeros_(weight)
                else:
                    nn.init.normal_(weight, std=0.5 / self.shape.width**0.5)

    def embedding(self) -> Tensor:
        """The folded embedding matrix `[vocabulary, width]`, used for input and output."""
        folded: Tensor = self.token.weight + self.feature(self.features)
        return folded

    def hidden(self, tokens: Tensor, embedding: Tensor) -> Tensor:
        """Final normalised states `[batch, tokens, width]` of `tokens` `[batch, tokens]` int64."""
        x = functional.embedding(tokens, embedding)
        length = tokens.shape[1]
        cosines, sines = self.cosines[:length], self.sines[:length]  # type: ignore[index]
        for block in self.blocks:
            x = block(x, cosines, sines)
        result: Tensor = self.norm(x)
        return result

    def loss(self, tokens: Tensor, weights: Tensor) -> Tensor:
        """Mean cross-entropy of the tokens whose weight is above zero.

        `tokens` `[batch, tokens + 1]` int64, `weights` the same shape fp32. Logits are computed only where
        they are scored: with short answers to long prompts that is a small part of the batch.
        """
        embedding = self.embedding()
        states = self.hidden(tokens[:, :-1], embedding)
        scored = weights[:, 1:] > 0
        logits = functional.linear(states[scored], embedding)
        losses = functional.cross_entropy(logits.float(), tokens[:, 1:][scored], reduction="none")
        weight = weights[:, 1:][scored]
        return (losses * weight).sum() / weight.sum()

    def parameter_count(self) -> int:
        """Weights of the exported model: the feature vectors are folded away."""
        return sum(p.numel() for p in self.parameters()) - self.feature.weight.numel()
