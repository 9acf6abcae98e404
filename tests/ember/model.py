"""The network: a small Llama (RMSNorm, RoPE, SwiGLU, grouped queries, tied embeddings) for
training, of the blocks that students are made of.

Owns the shapes and the forward pass. Knows nothing of text, GGUF or the training loop.
Rotary pairs are adjacent dimensions (2i, 2i+1), as llama.cpp's `llama` architecture wants them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from runner.jobs.distillation.network import Block, Sizes, initialise, rotary_turns


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


class CenteredNorm(nn.Module):
    """RMSNorm of a residual stream whose mean is taken out, computed as a layer norm without bias.

    PyTorch has a fused layer norm on the CPU and no fused RMSNorm. Taking the mean out is linear,
    so `export`
    moves it into the matrices that write to the stream, and the exported network needs plain
    RMSNorm only.
    """

    def __init__(self, shape: Sizes) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.width))
        self.epsilon = shape.norm_epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x` `[..., width]` fp32; the result has the type that matrix products use."""
        result = functional.layer_norm(x, self.weight.shape, self.weight, None, self.epsilon)
        return result.to(torch.bfloat16) if torch.is_autocast_enabled("cpu") else result


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
        self.blocks = nn.ModuleList(Block(shape, CenteredNorm) for _ in range(shape.layers))
        self.norm = CenteredNorm(shape)
        self.register_buffer("turns", rotary_turns(shape, shape.context), persistent=False)
        self.initialise()

    def initialise(self) -> None:
        """Draw the starting weights; layers that write to the residual stream start at zero."""
        nn.init.normal_(self.token.weight, std=0.02)
        nn.init.normal_(self.feature.weight, std=0.02)
        with torch.no_grad():
            self.feature.weight[0].zero_()
        initialise(self.blocks, self.shape.width)

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
