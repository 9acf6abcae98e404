"""The network: a small Llama (RMSNorm, RoPE, SwiGLU, grouped queries, tied embeddings) for
training.

Owns the shapes and the forward pass. Knows nothing of text, GGUF or the training loop.
Rotary pairs are adjacent dimensions (2i, 2i+1), as llama.cpp's `llama` architecture wants them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

SHORT = 512


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the network; dimensions are multiples of 256 so that every GGUF block
    format fits.
    """

    vocabulary: int = 4096
    width: int = 256
    layers: int = 6
    heads: int = 4
    key_value_heads: int = 2
    feed_forward: int = 768
    rope_base: float = 10_000.0
    context: int = 2048
    norm_epsilon: float = 1e-5

    @property
    def head_width(self) -> int:
        return self.width // self.heads


def rotary_turns(shape: Shape, length: int) -> Tensor:
    """Unit complex numbers that turn each pair of dimensions by its angle, `[length, head_width /
    2]` complex64.
    """
    exponents = torch.arange(0, shape.head_width, 2).float() / shape.head_width
    angles = torch.arange(length).float()[:, None] * shape.rope_base ** -exponents[None, :]
    return torch.polar(torch.ones_like(angles), angles)


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Rotate adjacent pairs of `x` `[batch, tokens, heads, head_width]` by position (Su et al.
    2021).
    """
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns[:, None, :]).flatten(-2).to(x.dtype)


class CenteredNorm(nn.Module):
    """RMSNorm of a residual stream whose mean is taken out, computed as a layer norm without bias.

    PyTorch has a fused layer norm on the CPU and no fused RMSNorm. Taking the mean out is linear,
    so `export`
    moves it into the matrices that write to the stream, and the exported network needs plain
    RMSNorm only.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.width))
        self.epsilon = shape.norm_epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x` `[..., width]` fp32; the result has the type that matrix products use."""
        result = functional.layer_norm(x, self.weight.shape, self.weight, None, self.epsilon)
        return result.to(torch.bfloat16) if torch.is_autocast_enabled("cpu") else result


def attend(query: Tensor, key: Tensor, value: Tensor, share: int) -> Tensor:
    """Causal attention of `query` `[batch, tokens, heads, head_width]` over keys and values with
    `share` times fewer heads.

    Up to `SHORT` tokens two plain products are 1.5 to 3 times faster than PyTorch's fused CPU
    kernel (measured on Zen 5).
    """
    batch, length, heads, width = query.shape
    key, value = (t.repeat_interleave(share, dim=2) for t in (key, value))
    query, key, value = (t.transpose(1, 2) for t in (query, key, value))
    if length > SHORT:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(
            1, 2
        )
    future = (
        torch.full((length, length), float("-inf"), dtype=query.dtype)
        .triu(1)
        .expand(batch * heads, length, length)
    )
    query, key, value = (t.reshape(batch * heads, length, width) for t in (query, key, value))
    scores = torch.baddbmm(future, query, key.transpose(1, 2), alpha=width**-0.5)
    mixed = torch.bmm(scores.softmax(-1, dtype=torch.float32).to(value.dtype), value)
    return mixed.view(batch, heads, length, width).transpose(1, 2)


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

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        """Mix `x` `[batch, tokens, width]` over earlier tokens; same shape out."""
        shape = self.shape
        joint = torch.cat([self.query.weight, self.key.weight, self.value.weight])
        heads = functional.linear(x, joint).unflatten(-1, (-1, shape.head_width))
        rotated, value = heads.split(
            [shape.heads + shape.key_value_heads, shape.key_value_heads], dim=2
        )
        query, key = rotate(rotated, turns).split([shape.heads, shape.key_value_heads], dim=2)
        mixed = attend(query, key, value, shape.heads // shape.key_value_heads)
        result: Tensor = self.output(mixed.flatten(-2))
        return result


class FeedForward(nn.Module):
    """SwiGLU (Shazeer 2020)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.up = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.down = nn.Linear(shape.feed_forward, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each token of `x` `[batch, tokens, width]` by itself."""
        result: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return result


class Block(nn.Module):
    """One pre-norm layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = CenteredNorm(shape)
        self.attention = Attention(shape)
        self.feed_forward_norm = CenteredNorm(shape)
        self.feed_forward = FeedForward(shape)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        """Add attention and feed-forward to the residual stream `x` fp32."""
        x = x + self.attention(self.attention_norm(x), turns)
        result: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return result


class Network(nn.Module):
    """Token ids in, hidden states or logits out.

    The embedding of a token is a free vector plus the sum of the vectors of its features (its
    letters by
    place, its leading space, its capital). Training on features lets " lamp", "lamp" and "Lamp"
    share what is
    learned, and lets the network read the letters of a token. Export folds the sum into one plain
    matrix.
    """

    features: Tensor
    turns: Tensor

    def __init__(self, shape: Shape, features: Tensor) -> None:
        """`features` `[vocabulary, slots]` int64: feature ids per token, 0 = none."""
        super().__init__()
        self.shape = shape
        self.register_buffer("features", features, persistent=True)
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.feature = nn.EmbeddingBag(
            int(features.max()) + 1, shape.width, mode="sum", padding_idx=0
        )
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = CenteredNorm(shape)
        self.register_buffer("turns", rotary_turns(shape, shape.context), persistent=False)
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
        """The folded embedding matrix `[vocabulary, width]`, rows of mean zero, used for input and
        output.
        """
        folded: Tensor = self.token.weight + self.feature(self.features)
        return folded - folded.mean(-1, keepdim=True)

    def hidden(self, tokens: Tensor, embedding: Tensor) -> Tensor:
        """Final normalised states `[batch, tokens, width]` of `tokens` `[batch, tokens]` int64."""
        x = functional.embedding(tokens, embedding)
        turns = self.turns[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, turns)
        result: Tensor = self.norm(x)
        return result

    def loss(self, tokens: Tensor, weights: Tensor, embedding: Tensor) -> Tensor:
        """Mean cross-entropy of the tokens whose weight is above zero.

        `tokens` `[batch, tokens + 1]` int64, `weights` the same shape fp32, `embedding` as
        `embedding()` gives it. Logits are computed only where
        they are scored: with short answers to long prompts that is a small part of the batch.
        """
        states = self.hidden(tokens[:, :-1], embedding)
        scored = weights[:, 1:] > 0
        logits = functional.linear(states[scored], embedding)
        losses = functional.cross_entropy(logits.float(), tokens[:, 1:][scored], reduction="none")
        weight = weights[:, 1:][scored]
        return (losses * weight).sum() / weight.sum()

    def parameter_count(self) -> int:
        """Weights of the exported model: the feature vectors are folded away."""
        total = sum(p.numel() for p in self.parameters())
        return int(total - self.feature.weight.numel())
