"""Qwen2 and Qwen2.5: Qwen2ForCausalLM. Biases on queries, keys and values."""

from __future__ import annotations

from collections.abc import Iterator

from modelfile.convert.config import Config
from modelfile.convert.decoder import (
    attention,
    attention_biases,
    check_activation,
    decoder_plan,
    feed_forward,
    norm,
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

    def layer_weights(layer: str) -> Iterator[Weight]:
        yield norm(layer, "input_layernorm", shape.hidden)
        yield from attention(layer, shape)
        yield from attention_biases(layer, shape)
        yield norm(layer, "post_attention_layernorm", shape.hidden)
        yield from feed_forward(layer, shape)

    return decoder_plan(config, shape, "qwen2", layer_weights, rename=with_prefix)


PLANS = {"qwen2": plan}
