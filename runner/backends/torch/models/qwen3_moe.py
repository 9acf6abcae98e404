"""Qwen3-MoE: Qwen3MoeForCausalLM, a Qwen3 with experts in some or all of its layers."""

from __future__ import annotations

from kernels import ops
from runner.backends.torch.config import (
    MAX_LAYERS,
    Config,
    ModelConfig,
    check_activation,
    read_window,
)
from runner.backends.torch.layers.decoder import FeedForward, LanguageModel
from runner.backends.torch.layers.experts import ExpertNames, Routing, read_experts
from runner.backends.torch.loading.decoder_builder import Biases, DecoderBuilder
from runner.backends.torch.loading.weights import WeightLoader

_NAMES = ExpertNames("gate_proj", "up_proj", "down_proj")
_WINDOW, _WIDTH = 4096, 768


def build(config: ModelConfig, weights: WeightLoader) -> LanguageModel:
    """The decoder of config. Raises ConvertError, ModelLoadFailed."""
    values = config.values
    check_activation(values)
    builder = DecoderBuilder(config, weights)
    sliding = values.flag("use_sliding_window")
    attention_config = builder.attention_config(read_window(values, _WINDOW) if sliding else None)
    biased = values.flag("attention_bias")
    biases = Biases(inputs=biased, output=biased)
    # transformers 5 saves it as num_local_experts
    count = "num_local_experts" if "num_local_experts" in values.values else "num_experts"
    routing = Routing.read(values, count, normalize=values.flag("norm_topk_prob"))
    width = values.integer("moe_intermediate_size", _WIDTH)
    every, plain = values.integer("decoder_sparse_step", 1), plain_layers(values)

    def feed_forward(layer: int) -> FeedForward:
        if layer in plain or (layer + 1) % every:
            return builder.gated_feed_forward(layer, ops.silu_mul)
        experts = read_experts(builder, f"model.layers.{layer}.mlp.", _NAMES, routing, width)
        return builder.summed(experts)

    return builder.decoder(
        builder.pre_norm_layers(
            lambda layer: builder.attention(layer, attention_config, biases, head_norms=True),
            feed_forward,
        )
    )


def plain_layers(values: Config) -> set[int]:
    """mlp_only_layers: the numbers of those without experts. Raises ConvertError."""
    given = values.values.get("mlp_only_layers") or []
    if not isinstance(given, list) or len(given) > MAX_LAYERS:
        values.refuse("mlp_only_layers", "expected a list of layer numbers")
    for number in given:
        if type(number) is not int:
            values.refuse("mlp_only_layers", f"{number!r} is not a layer number")
    return set(given)
