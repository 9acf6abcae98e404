"""Takes the parts of a decoder from a checkpoint, by the names that Hugging Face gives them.

What is the same in most architectures stands here, with switches where they differ; what only one
of them has, in its own file (models/). Computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runner.backends.torch.attention.paged import AttentionConfig
from runner.backends.torch.config import ModelConfig
from runner.backends.torch.layers.decoder import (
    Activation,
    Decoder,
    FeedForward,
    GatedFeedForward,
    PreNormLayer,
    SelfAttention,
    TransformerLayer,
)
from runner.backends.torch.layers.linear import RmsNorm
from runner.backends.torch.layers.rope import rope_tables
from runner.backends.torch.loading.weights import WeightLoader


@dataclass(frozen=True, slots=True)
class Biases:
    """Which projections of attention add something: those of queries, keys and values, the
    output."""

    inputs: bool = False
    output: bool = False


@dataclass(frozen=True, slots=True)
class DecoderBuilder:
    """offset: of the norms' weights, see RmsNorm."""

    config: ModelConfig
    weights: WeightLoader
    offset: float = 0.0

    def norm(self, name: str, width: int | None = None) -> RmsNorm:
        """A norm over width values, the hidden size if None. Raises ModelLoadFailed."""
        width = self.config.shape.hidden if width is None else width
        return self.weights.norm(name, width, self.config.norm_epsilon, self.offset)

    def attention_config(self, window: int | None = None) -> AttentionConfig:
        """Attention by the config's rope and scale. Raises ModelLoadFailed."""
        return AttentionConfig(
            self.config.scale, window, rope=rope_tables(self.config.rope, self.weights.placement)
        )

    def attention(
        self,
        layer: int,
        attention_config: AttentionConfig,
        biases: Biases = Biases(),
        *,
        head_norms: bool = False,
    ) -> SelfAttention:
        """Attention with a map each for queries, keys and values. Raises ModelLoadFailed."""
        shape, weights = self.config.shape, self.weights
        prefix = f"model.layers.{layer}.self_attn."
        widths = (("q_proj", shape.queries), ("k_proj", shape.keys), ("v_proj", shape.keys))
        maps = [(prefix + name, width) for name, width in widths]
        norms = (
            {
                "query_norm": self.norm(f"{prefix}q_norm", shape.head),
                "key_norm": self.norm(f"{prefix}k_norm", shape.head),
            }
            if head_norms
            else {}
        )
        return SelfAttention(
            layer=layer,
            shape=shape,
            projections=weights.stacked(maps, shape.hidden, bias=biases.inputs),
            output=weights.linear(
                f"{prefix}o_proj", shape.queries, shape.hidden, bias=biases.output
            ),
            config=attention_config,
            **norms,
        )

    def gated_feed_forward(
        self, layer: int, activation: Activation, *, bias: bool = False
    ) -> GatedFeedForward:
        """The feed-forward with a map each for gate and up. Raises ModelLoadFailed."""
        shape, prefix = self.config.shape, f"model.layers.{layer}.mlp."
        maps = [(f"{prefix}{name}_proj", shape.feed_forward) for name in ("gate", "up")]
        return GatedFeedForward(
            self.weights.stacked(maps, shape.hidden, bias=bias),
            self.weights.linear(f"{prefix}down_proj", shape.feed_forward, shape.hidden, bias=bias),
            activation,
        )

    def pre_norm_layers(
        self,
        attention: Callable[[int], SelfAttention],
        feed_forward: Callable[[int], FeedForward],
    ) -> list[TransformerLayer]:
        """All layers in the order of Llama. Raises ModelLoadFailed."""
        return [
            PreNormLayer(
                self.norm(f"model.layers.{layer}.input_layernorm"),
                attention(layer),
                self.norm(f"model.layers.{layer}.post_attention_layernorm"),
                feed_forward(layer),
            )
            for layer in range(self.config.shape.layers)
        ]

    def decoder(
        self,
        layers: Sequence[TransformerLayer],
        *,
        scale: float | None = None,
        softcap: float | None = None,
    ) -> Decoder:
        """The whole. scale: of the embedding; softcap: of the logits. Raises ModelLoadFailed."""
        shape, weights = self.config.shape, self.weights
        embedding = weights.embedding("model.embed_tokens", shape.vocabulary, shape.hidden, scale)
        head = weights.head(embedding, "lm_head", shape.hidden, tied=shape.tied)
        return Decoder(embedding, layers, self.norm("model.norm"), head, softcap)
