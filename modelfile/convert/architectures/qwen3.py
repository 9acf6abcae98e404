"""Qwen3: Qwen3ForCausalLM. Norms on each query and key head, no biases."""

from __future__ import annotations

from modelfile.convert.config import Config
from modelfile.convert.decoder import (
    check_activation,
    check_unbiased,
    decoder_plan,
    head_norms,
    read_decoder_shape,
    usual_layer,
    with_prefix,
)
from modelfile.convert.plan import ConversionPlan


def plan(config: Config) -> ConversionPlan:
    """What a checkpoint with this config.json holds. Raises ConvertError."""
    check_activation(config)
    check_unbiased(config, "attention_bias")
    shape = read_decoder_shape(config, head=128)
    return decoder_plan(config, shape, "qwen3", usual_layer(shape, head_norms), rename=with_prefix)


PLANS = {"qwen3": plan}
