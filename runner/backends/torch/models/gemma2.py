"""Gemma 2: Gemma2ForCausalLM. A norm before and after both halves of a layer, each stored as its
difference from one; soft caps on scores and logits; every other layer sees a window only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernels import ops
from runner.backends.torch.attention.paged import AttentionConfig
from runner.backends.torch.config import (
    GEMMA_ACTIVATIONS,
    ModelConfig,
    check_activation,
    read_sliding_layers,
    read_softcap,
    read_window,
)
from runner.backends.torch.layers.decoder import LanguageModel, SandwichLayer, TransformerLayer
from runner.backends.torch.loading.decoder_builder import Biases, DecoderBuilder
from runner.backends.torch.loading.weights import WeightLoader

_WINDOW, _QUERY_SCALE = 4096, 256.0
_SCORES_CAP, _LOGITS_CAP = 50.0, 30.0


def build(config: ModelConfig, weights: WeightLoader) -> LanguageModel:
    """The decoder of config. Raises ConvertError, ModelLoadFailed."""
    values = config.values
    check_activation(values, "hidden_activation", *GEMMA_ACTIVATIONS)
    builder = DecoderBuilder(config, weights, offset=1.0)
    full = replace(
        builder.attention_config(),
        scale=query_scale(config),
        softcap=read_softcap(values, "attn_logit_softcapping", _SCORES_CAP),
    )
    sliding = replace(full, window=read_window(values, _WINDOW))
    kinds = read_sliding_layers(values, config.shape.layers, lambda layer: layer % 2 == 0)
    return gemma(
        builder,
        [sliding if kind else full for kind in kinds],
        read_softcap(values, "final_logit_softcapping", _LOGITS_CAP),
    )


def query_scale(config: ModelConfig) -> float:
    """What scores are multiplied by: query_pre_attn_scalar to the power of -1/2."""
    scalar = config.values.number("query_pre_attn_scalar", _QUERY_SCALE)
    if scalar <= 0:
        config.values.refuse("query_pre_attn_scalar", f"{scalar:g}, expected more than 0")
    return float(scalar**-0.5)


def gemma(
    builder: DecoderBuilder,
    attention_configs: Sequence[AttentionConfig],
    softcap: float | None,
    *,
    head_norms: bool = False,
) -> LanguageModel:
    """The decoder whose layers attend as attention_configs say; softcap: of the logits. Raises
    ConvertError, ModelLoadFailed."""
    shape = builder.config.shape
    biased = builder.config.values.flag("attention_bias")
    biases = Biases(inputs=biased, output=biased)

    def layer(number: int) -> TransformerLayer:
        prefix = f"model.layers.{number}."
        return SandwichLayer(
            builder.gathered_norm(f"{prefix}input_layernorm"),
            builder.attention(number, attention_configs[number], biases, head_norms=head_norms),
            builder.norm(f"{prefix}post_attention_layernorm"),
            builder.gathered_norm(f"{prefix}pre_feedforward_layernorm"),
            builder.gated_feed_forward(number, ops.gelu_mul),
            builder.norm(f"{prefix}post_feedforward_layernorm"),
        )

    layers = [layer(number) for number in builder.layers]
    return builder.decoder(layers, scale=shape.hidden**0.5, softcap=softcap)
