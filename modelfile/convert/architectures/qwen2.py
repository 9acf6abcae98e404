"""Qwen2 and Qwen2.5: Qwen2ForCausalLM. Biases on queries, keys and values."""

from __future__ import annotations

from modelfile.convert.config import Config
from modelfile.convert.decoder import (
    attention_biases,
    check_activation,
    decoder_plan,
    read_decoder_shape,
    usual_layer,
    with_prefix,
)
from modelfile.convert.plan import ConversionPlan


def plan(config: Config) -> ConversionPlan:
    """What a checkpoint with this config.json holds. Raises ConvertError."""
    check_activation(config)
    shape = read_decoder_shape(config)
    if shape.queries != shape.hidden:
        config.refuse("head_dim", f"{shape.heads} heads of {shape.head} do not make {shape.hidden}")
    return decoder_plan(
        config, shape, "qwen2", usual_layer(shape, attention_biases), rename=with_prefix
    )


PLANS = {"qwen2": plan}
