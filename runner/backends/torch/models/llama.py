"""Llama 1 to 3.x: LlamaForCausalLM."""

from __future__ import annotations

from kernels import ops
from runner.backends.torch.config import ModelConfig, check_activation
from runner.backends.torch.layers.decoder import Decoder
from runner.backends.torch.loading.decoder_builder import Biases, DecoderBuilder
from runner.backends.torch.loading.weights import WeightLoader


def build(config: ModelConfig, weights: WeightLoader) -> Decoder:
    """The decoder of config. Raises ConvertError, ModelLoadFailed."""
    return llama(config, weights, window=None)


def llama(config: ModelConfig, weights: WeightLoader, window: int | None) -> Decoder:
    """A Llama whose tokens see the last window tokens. Raises ConvertError, ModelLoadFailed."""
    check_activation(config.values)
    parts = DecoderBuilder(config, weights)
    how = parts.attending(window)
    biased, bias = config.values.flag("attention_bias"), config.values.flag("mlp_bias")
    biases = Biases(inputs=biased, output=biased)
    return parts.decoder(
        parts.pre_norm(
            lambda layer: parts.attention(layer, how, biases),
            lambda layer: parts.gated(layer, ops.silu_mul, bias=bias),
        )
    )
