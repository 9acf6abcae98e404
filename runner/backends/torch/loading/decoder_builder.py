"""Takes the parts of a decoder from a checkpoint, by the names that Hugging Face gives them.

What is the same in most architectures stands here, with switches where they differ; what only one
of them has, in its own file (models/). Computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runner.backends.torch.attention.paged import AttentionConfig
from runner.backends.torch.config import DecoderShape, ModelConfig
from runner.backends.torch.layers.decoder import (
    Activation,
    Decoder,
    Embedding,
    FeedForward,
    GatedFeedForward,
    LanguageModel,
    PreNormLayer,
    SelfAttention,
    TransformerLayer,
)
from runner.backends.torch.layers.linear import Linear, RmsNorm, TokenEmbedding
from runner.backends.torch.layers.rope import rope_tables
from runner.backends.torch.loading.split_source import EMBEDDING, HEAD, NORM
from runner.backends.torch.loading.weights import WeightLoader
from runner.backends.torch.parallel.communication import Communicator, Ranks
from runner.backends.torch.parallel.layers import (
    GatheredNorm,
    ReceivedStates,
    SendingStage,
    Summed,
    VocabularyParallelEmbedding,
    VocabularyParallelHead,
)


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

    @property
    def ranks(self) -> Ranks:
        """This process among those that have the model."""
        return self.weights.placement.ranks

    @property
    def local(self) -> DecoderShape:
        """The sizes of what this process has of a layer's attention and feed-forward."""
        return self.ranks.layout.local(self.config.shape)

    @property
    def layers(self) -> range:
        """The numbers of the layers that this process has."""
        return self.ranks.layout.layers(self.config.shape.layers)

    def place(self, layer: int) -> int:
        """Which of them a layer is: its cache's place among the caches."""
        return layer - self.layers.start

    def experts(self, count: int) -> range:
        """Those of count experts that this process has."""
        return self.ranks.layout.part(count)

    def summed(self, part: Linear) -> Linear:
        """A map that has the inputs which this process computes, or a mixture that has its experts;
        all ranks' parts make it."""
        splitting = self._splitting
        return part if splitting is None else Summed(part, splitting)

    def norm(self, name: str, width: int | None = None) -> RmsNorm:
        """A norm over width values, the hidden size if None. Raises ModelLoadFailed."""
        width = self.config.shape.hidden if width is None else width
        return self.weights.norm(name, width, self.config.norm_epsilon, self.offset)

    def gathered_norm(self, name: str) -> RmsNorm:
        """A norm over the hidden size before maps that are split, which see all tokens. Raises
        ModelLoadFailed."""
        norm, splitting = self.norm(name), self._splitting
        if splitting is None:
            return norm
        return GatheredNorm(norm.weight, norm.epsilon, norm.offset, communicator=splitting)

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
        shape, weights = self.local, self.weights
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
            layer=self.place(layer),
            shape=shape,
            projections=weights.stacked(maps, shape.hidden, bias=biases.inputs),
            output=self.summed(
                weights.linear(f"{prefix}o_proj", shape.queries, shape.hidden, bias=biases.output)
            ),
            config=attention_config,
            **norms,
        )

    def gated_feed_forward(
        self, layer: int, activation: Activation, *, bias: bool = False
    ) -> GatedFeedForward:
        """The feed-forward with a map each for gate and up. Raises ModelLoadFailed."""
        shape, prefix = self.local, f"model.layers.{layer}.mlp."
        maps = [(f"{prefix}{name}_proj", shape.feed_forward) for name in ("gate", "up")]
        gate_up = self.weights.stacked(maps, shape.hidden, bias=bias)
        down = self.weights.linear(
            f"{prefix}down_proj", shape.feed_forward, shape.hidden, bias=bias
        )
        return GatedFeedForward(gate_up, self.summed(down), activation)

    def pre_norm_layers(
        self,
        attention: Callable[[int], SelfAttention],
        feed_forward: Callable[[int], FeedForward],
    ) -> list[TransformerLayer]:
        """The layers of this process in the order of Llama. Raises ModelLoadFailed."""
        return [
            PreNormLayer(
                self.gathered_norm(f"model.layers.{layer}.input_layernorm"),
                attention(layer),
                self.gathered_norm(f"model.layers.{layer}.post_attention_layernorm"),
                feed_forward(layer),
            )
            for layer in self.layers
        ]

    def decoder(
        self,
        layers: Sequence[TransformerLayer],
        *,
        scale: float | None = None,
        softcap: float | None = None,
    ) -> LanguageModel:
        """The whole of what this process has. scale: of the embedding; softcap: of the logits.
        Raises ModelLoadFailed."""
        shape, weights, layout = self.config.shape, self.weights, self.ranks.layout
        words, rows = len(layout.part(shape.vocabulary)), None
        if layout.is_first or (layout.is_last and shape.tied):
            rows = weights.embedding(EMBEDDING, words, shape.hidden, scale)
        entry = self._entry(rows)
        if not layout.is_last:
            assert self.ranks.communicator is not None
            return SendingStage(entry, layers, self.ranks.communicator)
        head = weights.head(HEAD, shape.hidden, words, rows if shape.tied else None)
        return Decoder(entry, layers, self.gathered_norm(NORM), self._gathered(head), softcap)

    @property
    def _splitting(self) -> Communicator | None:
        """What those that share its layers exchange tensors by; None: it shares none."""
        return self.ranks.communicator if self.ranks.layout.tensor > 1 else None

    def _entry(self, rows: TokenEmbedding | None) -> Embedding:
        """What gives the first layer of this process its states."""
        shape, place, layout = self.config.shape, self.weights.placement, self.ranks.layout
        communicator, splitting = self.ranks.communicator, self._splitting
        if not layout.is_first:
            assert communicator is not None
            return ReceivedStates(shape.hidden, place.dtype, place.device, communicator)
        assert rows is not None
        if splitting is None:
            return rows
        return VocabularyParallelEmbedding(rows, layout.part(shape.vocabulary).start, splitting)

    def _gathered(self, head: Linear) -> Linear:
        """The map to all logits, of one to those that this process computes."""
        layout, splitting = self.ranks.layout, self._splitting
        if splitting is None:
            return head
        sizes = layout.parts(self.config.shape.vocabulary)
        return VocabularyParallelHead(head, sizes, splitting)
