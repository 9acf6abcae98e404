"""Qwen2 and Qwen2.5: Qwen2ForCausalLM. Queries, keys and values have biases; the layers from
max_window_layers on may see a window only."""

from __future__ import annotations

from dataclasses import replace

from kernels import ops
from runner.backends.torch.attention.paged import AttentionConfig
from runner.backends.torch.config import (
    MAX_LAYERS,
    Config,
    ModelConfig,
    check_activation,
    read_sliding_layers,
    read_window,
)
from runner.backends.torch.layers.decoder import LanguageModel
from runner.backends.torch.loading.decoder_builder import Biases, DecoderBuilder
from runner.backends.torch.loading.weights import WeightLoader

_WINDOW, _FIRST = 4096, 28


def build(config: ModelConfig, weights: WeightLoader) -> LanguageModel:
    """The decoder of config. Raises ConvertError, ModelLoadFailed."""
    check_activation(config.values)
    builder = DecoderBuilder(config, weights)
    attention_configs = attention_config_by_layer(builder)
    return builder.decoder(
        builder.pre_norm_layers(
            lambda layer: builder.attention(layer, attention_configs[layer], Biases(inputs=True)),
            lambda layer: builder.gated_feed_forward(layer, ops.silu_mul),
        )
    )


def attention_config_by_layer(builder: DecoderBuilder) -> list[AttentionConfig]:
    """How each layer attends, by use_sliding_window and max_window_layers. Raises ConvertError,
    ModelLoadFailed."""
    values, layers = builder.config.values, builder.config.shape.layers
    full = builder.attention_config()
    window = read_window(values, _WINDOW) if values.flag("use_sliding_window") else None
    sliding = replace(full, window=window)
    first = _first_window(values)
    kinds = read_sliding_layers(values, layers, lambda layer: layer >= first)
    return [sliding if kind else full for kind in kinds]


def _first_window(values: Config) -> int:
    """max_window_layers, which may be 0."""
    return (
        0
        if values.values.get("max_window_layers") == 0
        else values.integer("max_window_layers", _FIRST, maximum=MAX_LAYERS)
    )
