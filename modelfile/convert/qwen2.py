"""Qwen2 and Qwen2.5: Qwen2ForCausalLM. Biases on queries, keys and values."""

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
    with_prefix,
)
from modelfile.convert.plan import ConversionPlan, Weight


def plan(config: Config) -> ConversionPlan:
    """What a checkpoint with this config.json holds. Raises ConvertError."""
    check_activation(config)
    shape = read_decoder_shape(config)
    if shape.queries != shape.hidden:
        config.refuse("head_dim", f"{shape.heads} heads of {shape.head} are not {shape.hidden}")
    return ConversionPlan(
        architecture="qwen2",
        vocabulary_size=shape.vocabulary,
        block_count=shape.layers,
        metadata=hyperparameters(config, shape, "qwen2"),
        weights=tuple(_weights(shape)),
        rename=with_prefix,
    )


def _weights(shape: DecoderShape) -> Iterator[Weight]:
    yield from outer_weights(shape)
    for layer in layers_of(shape):
        yield norm(layer, "input_layernorm", shape.hidden)
        yield from attention(layer, shape)
        yield from attention_biases(layer, shape)
        yield norm(layer, "post_attention_layernorm", shape.hidden)
        yield from feed_forward(layer, shape)
