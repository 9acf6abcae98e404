"""Llama 2 and 3: LlamaForCausalLM."""

from __future__ import annotations

from collections.abc import Iterator

from modelfile.convert.config import Config
from modelfile.convert.decoder import (
    DecoderShape,
    attention,
    attention_biases,
    check_activation,
    feed_forward,
    hyperparameters,
    layers_of,
    norm,
    outer_weights,
    read_decoder_shape,
)
from modelfile.convert.plan import ConversionPlan, Weight
from modelfile.convert.rope import llama3_frequencies, rope_base


def plan(config: Config) -> ConversionPlan:
    """What a checkpoint with this config.json holds. Raises ConvertError."""
    check_activation(config)
    shape = read_decoder_shape(config)
    return ConversionPlan(
        architecture="llama",
        vocabulary_size=shape.vocabulary,
        block_count=shape.layers,
        metadata=hyperparameters(config, shape, "llama"),
        weights=tuple(_weights(config, shape)),
        computed=llama3_frequencies(config, shape.head, rope_base(config, 10000.0)),
    )


def _weights(config: Config, shape: DecoderShape) -> Iterator[Weight]:
    yield from outer_weights(shape)
    for layer in layers_of(shape):
        yield norm(layer, "input_layernorm", shape.hidden)
        yield from attention(layer, shape, interleaved=True)
        if config.flag("attention_bias"):
            yield from attention_biases(layer, shape, interleaved=True, output=True)
        yield norm(layer, "post_attention_layernorm", shape.hidden)
        yield from feed_forward(layer, shape)
        if config.flag("mlp_bias"):
            for name in ("gate", "up"):
                yield Weight(f"{layer}mlp.{name}_proj.bias", (shape.feed_forward,))
            yield Weight(f"{layer}mlp.down_proj.bias", (shape.hidden,))
