"""Gemma 2: Gemma2ForCausalLM. Norms around each block, soft-capped logits, sliding-window attention
in every other layer. Its norms are stored as their difference from one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from modelfile.convert.config import Config
from modelfile.convert.decoder import (
    DecoderShape,
    attention,
    check_activation,
    check_unbiased,
    decoder_plan,
    feed_forward,
    norm,
    read_decoder_shape,
)
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.plan import ConversionPlan, Weight

ACTIVATIONS: Final = ("gelu_pytorch_tanh", "gelu")
NORMS: Final = (
    *("input_layernorm", "post_attention_layernorm"),
    *("pre_feedforward_layernorm", "post_feedforward_layernorm"),
)
_SHIFT = 1.0


def plan(config: Config) -> ConversionPlan:
    """What a checkpoint with this config.json holds. Raises ConvertError."""
    check_activation(config, "hidden_activation", *ACTIVATIONS)
    check_unbiased(config, "attention_bias")
    shape = read_decoder_shape(config, head=256, tied=True)
    check_query_scale(config, shape, largest_layers=46)
    extra = [
        MetadataValue(f"gemma2.{name}_logit_softcapping", "f32", config.number(key, default))
        for name, key, default in (
            ("attn", "attn_logit_softcapping", 50.0),
            ("final", "final_logit_softcapping", 30.0),
        )
    ]
    window = config.integer("sliding_window", 4096, maximum=1 << 31)
    extra.append(MetadataValue("gemma2.attention.sliding_window", "u32", window))

    def layer_weights(layer: str) -> Iterator[Weight]:
        for name in NORMS:
            yield norm(layer, name, shape.hidden, _SHIFT)
        yield from attention(layer, shape)
        yield from feed_forward(layer, shape)

    return decoder_plan(config, shape, "gemma2", layer_weights, metadata=extra, shift=_SHIFT)


def check_query_scale(config: Config, shape: DecoderShape, largest_layers: int) -> None:
    """Raises ConvertError when queries are scaled by another number than llama.cpp's: the width
    of a head, or in the largest model, known by its layers, of the hidden state per head."""
    expected = shape.hidden // shape.heads if shape.layers == largest_layers else shape.head
    scale = config.number("query_pre_attn_scalar", 256)
    if scale != expected:
        config.refuse("query_pre_attn_scalar", f"{scale:g}, but llama.cpp computes with {expected}")


PLANS = {"gemma2": plan}
