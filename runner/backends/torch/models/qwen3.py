"""Qwen3: Qwen3ForCausalLM. Each head's queries and keys are normed before they turn."""

from __future__ import annotations

from kernels import ops
from runner.backends.torch.config import ModelConfig, check_activation
from runner.backends.torch.layers.decoder import Decoder
from runner.backends.torch.loading.decoder_builder import Biases, DecoderBuilder
from runner.backends.torch.loading.weights import WeightLoader
from runner.backends.torch.models.qwen2 import attending_by_layer


def build(config: ModelConfig, weights: WeightLoader) -> Decoder:
    """The decoder of config. Raises ConvertError, ModelLoadFailed."""
    check_activation(config.values)
    parts = DecoderBuilder(config, weights)
    hows = attending_by_layer(parts)
    biased = config.values.flag("attention_bias")
    biases = Biases(inputs=biased, output=biased)
    return parts.decoder(
        parts.pre_norm(
            lambda layer: parts.attention(layer, hows[layer], biases, head_norms=True),
            lambda layer: parts.gated(layer, ops.silu_mul),
        )
    )
