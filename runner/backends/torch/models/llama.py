"""Llama 1 to 3.x: LlamaForCausalLM."""

from __future__ import annotations

from kernels import ops
from runner.backends.torch.config import ModelConfig, check_activation
from runner.backends.torch.layers.decoder import LanguageModel
from runner.backends.torch.loading.decoder_builder import Biases, DecoderBuilder
from runner.backends.torch.loading.weights import WeightLoader


def build(config: ModelConfig, weights: WeightLoader) -> LanguageModel:
    """The decoder of config. Raises ConvertError, ModelLoadFailed."""
    return llama(config, weights, window=None)


def llama(config: ModelConfig, weights: WeightLoader, window: int | None) -> LanguageModel:
    """A Llama whose tokens see the last window tokens. Raises ConvertError, ModelLoadFailed."""
    check_activation(config.values)
    builder = DecoderBuilder(config, weights)
    attention_config = builder.attention_config(window)
    biased, bias = config.values.flag("attention_bias"), config.values.flag("mlp_bias")
    biases = Biases(inputs=biased, output=biased)
    return builder.decoder(
        builder.pre_norm_layers(
            lambda layer: builder.attention(layer, attention_config, biases),
            lambda layer: builder.gated_feed_forward(layer, ops.silu_mul, bias=bias),
        )
    )
