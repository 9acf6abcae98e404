"""Qwen3: Qwen3ForCausalLM. Norms on each query and key head, no biases."""

from __future__ import annotations

from collections.abc import Iterator

from modelfile.convert.config import Config
from modelfile.convert.decoder import (
    attention,
    check_activation,
    check_unbiased,
    decoder_plan,
    feed_forward,
    head_norms,
    norm,
    read_decoder_shape,
    with_prefix,
)
from modelfile.convert.plan import ConversionPlan, Weight


def plan(config: Config) -> ConversionPlan:
    """What a checkpoint with this config.json holds. Raises ConvertError."""
    check_activation(config)
    check_unbiased(config, "attention_bias")
    shape = read_decoder_shape(config, head=128)

    def layer_weights(layer: str) -> Iterator[Weight]:
        yield norm(layer, "input_layernorm", shape.hidden)
        yield from attention(layer, shape)
        yield from head_norms(layer, shape)
        yield norm(layer, "post_attention_layernorm", shape.hidden)
        yield from feed_forward(layer, shape)

    return decoder_plan(config, shape, "qwen3", layer_weights, rename=with_prefix)


PLANS = {"qwen3": plan}
