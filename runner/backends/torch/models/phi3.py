"""Phi-3 and Phi-4: Phi3ForCausalLM, a Llama with one projection for queries, keys and values and
one for gate and up. A part of each head may turn, by LongRoPE's frequencies."""

from __future__ import annotations

from kernels import ops
from runner.backends.torch.config import ModelConfig, check_activation, read_window
from runner.backends.torch.layers.decoder import GatedFeedForward, LanguageModel, SelfAttention
from runner.backends.torch.loading.decoder_builder import DecoderBuilder
from runner.backends.torch.loading.weights import WeightLoader


def build(config: ModelConfig, weights: WeightLoader) -> LanguageModel:
    """The decoder of config. Raises ConvertError, ModelLoadFailed."""
    check_activation(config.values)
    builder = DecoderBuilder(config, weights)
    shape = builder.local
    attention_config = builder.attention_config(read_window(config.values))

    def attention(layer: int) -> SelfAttention:
        prefix = f"model.layers.{layer}.self_attn."
        fused = shape.queries + 2 * shape.keys
        return SelfAttention(
            layer=builder.place(layer),
            shape=shape,
            projections=weights.linear(f"{prefix}qkv_proj", shape.hidden, fused),
            output=builder.summed(weights.linear(f"{prefix}o_proj", shape.queries, shape.hidden)),
            config=attention_config,
        )

    def feed_forward(layer: int) -> GatedFeedForward:
        prefix, width = f"model.layers.{layer}.mlp.", shape.feed_forward
        return GatedFeedForward(
            weights.linear(f"{prefix}gate_up_proj", shape.hidden, 2 * width),
            builder.summed(weights.linear(f"{prefix}down_proj", width, shape.hidden)),
            ops.silu_mul,
        )

    return builder.decoder(builder.pre_norm_layers(attention, feed_forward))
