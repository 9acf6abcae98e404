"""Qwen3-MoE: Qwen3MoeForCausalLM. Every layer has experts."""

from __future__ import annotations

from collections.abc import Iterator

from modelfile.convert.config import Config
from modelfile.convert.decoder import (
    check_activation,
    check_unbiased,
    decoder_plan,
    head_norms,
    read_decoder_shape,
    usual_layer,
)
from modelfile.convert.experts import expert_metadata, expert_weights, read_experts
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.plan import ConversionPlan, Weight

_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def plan(config: Config) -> ConversionPlan:
    """What a checkpoint with this config.json holds. Raises ConvertError."""
    check_activation(config)
    check_unbiased(config, "attention_bias")
    if config.values.get("mlp_only_layers") or config.integer("decoder_sparse_step", 1) != 1:
        config.refuse("mlp_only_layers", "layers without experts are not supported")
    if not config.flag("norm_topk_prob"):
        config.refuse("norm_topk_prob", "false is not supported for this architecture")
    shape = read_decoder_shape(config)
    # transformers 5 saves it as num_local_experts
    count = "num_local_experts" if "num_local_experts" in config.values else "num_experts"
    experts = read_experts(config, count, "moe_intermediate_size", None)
    width = MetadataValue("qwen3moe.expert_feed_forward_length", "u32", experts.feed_forward)

    def feed(layer: str) -> Iterator[Weight]:
        return expert_weights(f"{layer}mlp.", _PROJECTIONS, experts)

    return decoder_plan(
        config,
        shape,
        "qwen3moe",
        usual_layer(shape, head_norms, feed=feed),
        metadata=(*expert_metadata(experts, "qwen3moe"), width),
        expert_count=experts.count,
    )


PLANS = {"qwen3_moe": plan}
