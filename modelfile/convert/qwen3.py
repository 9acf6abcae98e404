"""Qwen3: Qwen3ForCausalLM. Norms on each query and key head, no biases."""

from __future__ import annotations

from collections.abc import Iterator

from modelfile.convert.config import Config
from modelfile.convert.decoder import (
    DecoderShape,
    attention,
    check_activation,
    check_unbiased,
    feed_forward,
    head_norms,
    hyperparameters,
    layers_of,
    norm,
    outer_weights,
    read_decoder_shape,
    with_prefix,
)
from modelfile.convert.plan import ConversionPlan, Weight


def plan(config: Config) -> ConversionPlan:
    """What a checkpoint with this config.json holds. Raises ConvertError."""
    check_activation(config)
    check_unbiased(config, "attention_bias")
    shape = read_decoder_shape(config, head=128)
    return ConversionPlan(
        architecture="qwen3",
        vocabulary_size=shape.vocabulary,
        block_count=shape.layers,
        metadata=hyperparameters(config, shape, "qwen3"),
        weights=tuple(_weights(shape)),
        rename=with_prefix,
    )


def _weights(shape: DecoderShape) -> Iterator[Weight]:
    yield from outer_weights(shape)
    for layer in layers_of(shape):
        yield norm(layer, "input_layernorm", shape.hidden)
        yield from attention(layer, shape)
        yield from head_norms(layer, shape)
        yield norm(layer, "post_attention_layernorm", shape.hidden)
        yield from feed_forward(layer, shape)
