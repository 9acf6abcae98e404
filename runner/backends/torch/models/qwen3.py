"""Qwen3: Qwen3ForCausalLM. Each head's queries and keys are normed before they turn."""

from __future__ import annotations

from kernels import ops
from runner.backends.torch.config import ModelConfig, check_activation
from runner.backends.torch.layers.decoder import LanguageModel
from runner.backends.torch.loading.decoder_builder import Biases, DecoderBuilder
from runner.backends.torch.loading.weights import WeightLoader
from runner.backends.torch.models.qwen2 import attention_config_by_layer


def build(config: ModelConfig, weights: WeightLoader) -> LanguageModel:
    """The decoder of config. Raises ConvertError, ModelLoadFailed."""
    check_activation(config.values)
    builder = DecoderBuilder(config, weights)
    attention_configs = attention_config_by_layer(builder)
    biased = config.values.flag("attention_bias")
    biases = Biases(inputs=biased, output=biased)
    return builder.decoder(
        builder.pre_norm_layers(
            lambda layer: builder.attention(
                layer, attention_configs[layer], biases, head_norms=True
            ),
            lambda layer: builder.gated_feed_forward(layer, ops.silu_mul),
        )
    )
