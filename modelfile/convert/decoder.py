"""What Llama-like decoders have in common: norm, attention, norm, gated feed-forward.

Each architecture's own file says how it differs. Names are those of Hugging Face checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from modelfile.convert.config import Config
from modelfile.convert.metadata import MetadataValue, Value, ValueType
from modelfile.convert.plan import ConversionPlan, Weight
from modelfile.convert.rope import rope_base, rope_scaling

MAX_LAYERS = 1024
MAX_EXPERTS = 4096
_MAX_CONTEXT = 1 << 31


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """The sizes of a decoder. heads_kv: those of keys and values; head: the width of one."""

    vocabulary: int
    layers: int
    hidden: int
    feed_forward: int
    heads: int
    heads_kv: int
    head: int
    tied: bool

    @property
    def queries(self) -> int:
        """The width of all query heads together."""
        return self.heads * self.head

    @property
    def keys(self) -> int:
        """The width of all key heads together, which is that of the values."""
        return self.heads_kv * self.head


def read_decoder_shape(
    config: Config, *, head: int | None = None, tied: bool = False
) -> DecoderShape:
    """The sizes in config.json. head and tied: what holds where it does not say. Raises
    ConvertError when they contradict each other."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    heads_kv = config.integer("num_key_value_heads", heads)
    if heads % heads_kv:
        config.refuse("num_key_value_heads", f"{heads_kv} does not divide {heads} heads")
    if head is None and config.values.get("head_dim") is None and hidden % heads:
        config.refuse("hidden_size", f"{hidden} is not a multiple of {heads} heads")
    width = config.integer("head_dim", head or max(1, hidden // heads))
    if width % 2:
        config.refuse("head_dim", f"{width} is odd; heads are rotated in pairs")
    return DecoderShape(
        vocabulary=config.integer("vocab_size"),
        layers=config.integer("num_hidden_layers", maximum=MAX_LAYERS),
        hidden=hidden,
        feed_forward=config.integer("intermediate_size"),
        heads=heads,
        heads_kv=heads_kv,
        head=width,
        tied=config.flag("tie_word_embeddings", tied),
    )


def hyperparameters(
    config: Config,
    shape: DecoderShape,
    architecture: str,
    *,
    base: float = 10000.0,
    epsilon: float = 1e-6,
) -> tuple[MetadataValue, ...]:
    """The keys that llama.cpp reads for every decoder. base, epsilon: where config.json does not
    say. Raises ConvertError."""
    entries: list[tuple[str, ValueType, Value]] = [
        ("context_length", "u32", config.integer("max_position_embeddings", maximum=_MAX_CONTEXT)),
        ("embedding_length", "u32", shape.hidden),
        ("block_count", "u32", shape.layers),
        ("feed_forward_length", "u32", shape.feed_forward),
        ("attention.head_count", "u32", shape.heads),
        ("attention.head_count_kv", "u32", shape.heads_kv),
        ("attention.key_length", "u32", shape.head),
        ("attention.value_length", "u32", shape.head),
        ("attention.layer_norm_rms_epsilon", "f32", config.number("rms_norm_eps", epsilon)),
        ("rope.dimension_count", "u32", shape.head),
        ("rope.freq_base", "f32", rope_base(config, base)),
        ("vocab_size", "u32", shape.vocabulary),
    ]
    values = (MetadataValue(f"{architecture}.{key}", kind, value) for key, kind, value in entries)
    return (*values, *rope_scaling(config, architecture))


def decoder_weights(
    shape: DecoderShape, layer_weights: Callable[[str], Iterator[Weight]], shift: float = 0.0
) -> Iterator[Weight]:
    """Embedding, last norm, the output where it is not the embedding again, and the layers."""
    yield Weight("model.embed_tokens.weight", (shape.vocabulary, shape.hidden))
    yield Weight("model.norm.weight", (shape.hidden,), shift=shift)
    if not shape.tied:
        yield Weight("lm_head.weight", (shape.vocabulary, shape.hidden))
    for number in range(shape.layers):
        yield from layer_weights(f"model.layers.{number}.")


def decoder_plan(
    config: Config,
    shape: DecoderShape,
    architecture: str,
    layer_weights: Callable[[str], Iterator[Weight]],
    *,
    metadata: Iterable[MetadataValue] = (),
    base: float = 10000.0,
    epsilon: float = 1e-6,
    shift: float = 0.0,
    **others: Any,
) -> ConversionPlan:
    """The plan of a decoder whose layers are alike. layer_weights: those of a layer, by the prefix
    of its names; metadata: beyond the hyperparameters, see there for base and epsilon; shift: of
    the last norm; others: fields of the plan. Raises ConvertError."""
    found = hyperparameters(config, shape, architecture, base=base, epsilon=epsilon)
    return ConversionPlan(
        architecture,
        shape.vocabulary,
        shape.layers,
        metadata=(*found, *metadata),
        weights=tuple(decoder_weights(shape, layer_weights, shift)),
        **others,
    )


def norm(layer: str, name: str, width: int, shift: float = 0.0) -> Weight:
    """A norm of one layer. layer: its prefix."""
    return Weight(f"{layer}{name}.weight", (width,), shift=shift)


def attention(layer: str, shape: DecoderShape, *, interleaved: bool = False) -> Iterator[Weight]:
    """The projections of one layer. interleaved: llama.cpp rotates neighbours, where Hugging Face
    rotates a head's halves."""
    rotary = (shape.heads, shape.heads_kv, None) if interleaved else (None, None, None)
    widths = (shape.queries, shape.keys, shape.keys)
    for name, width, heads in zip("qkv", widths, rotary, strict=True):
        prefix = f"{layer}self_attn.{name}_proj"
        yield Weight(f"{prefix}.weight", (width, shape.hidden), rotary_heads=heads)
    yield Weight(f"{layer}self_attn.o_proj.weight", (shape.hidden, shape.queries))


def attention_biases(
    layer: str, shape: DecoderShape, *, interleaved: bool = False, output: bool = False
) -> Iterator[Weight]:
    """The biases of the projections of one layer. output: that of the last one too."""
    rotary = (shape.heads, shape.heads_kv, None) if interleaved else (None, None, None)
    widths = (shape.queries, shape.keys, shape.keys)
    for name, width, heads in zip("qkv", widths, rotary, strict=True):
        yield Weight(f"{layer}self_attn.{name}_proj.bias", (width,), rotary_heads=heads)
    if output:
        yield Weight(f"{layer}self_attn.o_proj.bias", (shape.hidden,))


def head_norms(layer: str, shape: DecoderShape, shift: float = 0.0) -> Iterator[Weight]:
    """The norms of each query and key head."""
    yield norm(layer, "self_attn.q_norm", shape.head, shift)
    yield norm(layer, "self_attn.k_norm", shape.head, shift)


def feed_forward(layer: str, shape: DecoderShape) -> Iterator[Weight]:
    """The gated feed-forward of one layer."""
    for name in ("gate", "up"):
        yield Weight(f"{layer}mlp.{name}_proj.weight", (shape.feed_forward, shape.hidden))
    yield Weight(f"{layer}mlp.down_proj.weight", (shape.hidden, shape.feed_forward))


def usual_layer(
    shape: DecoderShape,
    *inside: Callable[[str, DecoderShape], Iterator[Weight]],
    interleaved: bool = False,
    feed: Callable[[str], Iterator[Weight]] | None = None,
) -> Callable[[str], Iterator[Weight]]:
    """The weights of a layer by its prefix: norm, attention and what is inside it, norm, and the
    feed-forward, the gated one unless feed is given."""

    def weights(layer: str) -> Iterator[Weight]:
        yield norm(layer, "input_layernorm", shape.hidden)
        yield from attention(layer, shape, interleaved=interleaved)
        for part in inside:
            yield from part(layer, shape)
        yield norm(layer, "post_attention_layernorm", shape.hidden)
        yield from feed_forward(layer, shape) if feed is None else feed(layer)

    return weights


def with_prefix(name: str) -> str:
    """The name in a causal model; embedders made of one leave "model." out."""
    return f"model.{name}" if name.startswith(("layers.", "embed_tokens.", "norm.")) else name


def check_activation(config: Config, key: str = "hidden_act", *known: str) -> None:
    """Raises ConvertError when the feed-forward uses another function than llama.cpp does."""
    known = known or ("silu", "swish")
    config.one_of(key, known[0], *known)


def check_unbiased(config: Config, *keys: str) -> None:
    """Raises ConvertError when the checkpoint has biases for which llama.cpp has no place."""
    for key in keys:
        if config.flag(key):
            config.refuse(key, "biases are not supported for this architecture")
