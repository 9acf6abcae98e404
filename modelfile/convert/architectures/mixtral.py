"""Mixtral: MixtralForCausalLM, a Llama of llama.cpp with experts."""

from __future__ import annotations

from collections.abc import Iterator

from modelfile.convert.config import Config
from modelfile.convert.decoder import (
    check_activation,
    decoder_plan,
    read_decoder_shape,
    usual_layer,
)
from modelfile.convert.experts import expert_metadata, expert_weights, read_experts
from modelfile.convert.plan import ConversionPlan, Weight


def plan(config: Config) -> ConversionPlan:
    """What a checkpoint with this config.json holds. Raises ConvertError."""
    check_activation(config)
    shape = read_decoder_shape(config)
    experts = read_experts(config, "num_local_experts", "intermediate_size", 8)

    def feed(layer: str) -> Iterator[Weight]:
        return expert_weights(f"{layer}block_sparse_moe.", ("w1", "w3", "w2"), experts)

    return decoder_plan(
        config,
        shape,
        "llama",
        usual_layer(shape, interleaved=True, feed=feed),
        metadata=expert_metadata(experts, "llama"),
        base=1e6,
        epsilon=1e-5,
        expert_count=experts.count,
    )


PLANS = {"mixtral": plan}
