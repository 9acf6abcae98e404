"""Phi-3 and Phi-4: Phi3ForCausalLM, a Llama with one projection for queries, keys and values and
one for gate and up. A part of each head may turn, by LongRoPE's frequencies."""

from __future__ import annotations

from kernels import ops
from modelfile.convert.decoder import check_activation
from runner.backends.torch.config import ModelConfig
from runner.backends.torch.decoder import Attention, Decoder, GatedFeedForward
from runner.backends.torch.parts import Parts, window_of
from runner.backends.torch.weights import Weights


def build(config: ModelConfig, weights: Weights) -> Decoder:
    """The decoder of config. Raises ConvertError, ModelLoadFailed."""
    check_activation(config.values)
    parts, shape = Parts(config, weights), config.shape
    how = parts.attending(window_of(config.values))

    def attention(layer: int) -> Attention:
        prefix = f"model.layers.{layer}.self_attn."
        fused = shape.queries + 2 * shape.keys
        return Attention(
            layer=layer,
            shape=shape,
            projections=weights.linear(f"{prefix}qkv_proj", shape.hidden, fused),
            output=weights.linear(f"{prefix}o_proj", shape.queries, shape.hidden),
            how=how,
        )

    def feed_forward(layer: int) -> GatedFeedForward:
        prefix, width = f"model.layers.{layer}.mlp.", shape.feed_forward
        return GatedFeedForward(
            weights.linear(f"{prefix}gate_up_proj", shape.hidden, 2 * width),
            weights.linear(f"{prefix}down_proj", width, shape.hidden),
            ops.silu_mul,
        )

    return parts.decoder(parts.pre_norm(attention, feed_forward))
