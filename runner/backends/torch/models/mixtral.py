"""Mixtral: MixtralForCausalLM, a Mistral with experts in place of the feed-forward."""

from __future__ import annotations

from runner.backends.torch.config import ModelConfig, check_activation, read_window
from runner.backends.torch.layers.decoder import LanguageModel
from runner.backends.torch.layers.experts import ExpertNames, Routing, read_experts
from runner.backends.torch.loading.decoder_builder import DecoderBuilder
from runner.backends.torch.loading.weights import WeightLoader

_NAMES = ExpertNames("w1", "w3", "w2")


def build(config: ModelConfig, weights: WeightLoader) -> LanguageModel:
    """The decoder of config. Raises ConvertError, ModelLoadFailed."""
    values = config.values
    check_activation(values)
    builder = DecoderBuilder(config, weights)
    attention_config = builder.attention_config(read_window(values))
    routing = Routing.read(values, "num_local_experts", normalize=True)
    width = config.shape.feed_forward
    return builder.decoder(
        builder.pre_norm_layers(
            lambda layer: builder.attention(layer, attention_config),
            lambda layer: builder.summed(
                read_experts(
                    builder, f"model.layers.{layer}.block_sparse_moe.", _NAMES, routing, width
                )
            ),
        )
    )
