"""gpt-oss: GptOssForCausalLM. Experts in every layer, packed as MXFP4; scores that sinks take a
part of; every other layer sees a window only."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from kernels.quant.mxfp4 import Mxfp4Weight
from runner.backends.torch.attention.paged import AttentionConfig
from runner.backends.torch.config import ModelConfig, read_sliding_layers, read_window
from runner.backends.torch.layers.decoder import Activation, LanguageModel
from runner.backends.torch.layers.experts import (
    ExpertNames,
    ListedExperts,
    Routing,
    StackedExperts,
    read_experts,
)
from runner.backends.torch.loading.decoder_builder import Biases, DecoderBuilder
from runner.backends.torch.loading.weights import WeightLoader

Tensor = Any
_WINDOW, _ALPHA, _LIMIT = 128, 1.702, 7.0
_NAMES = ExpertNames("gate_proj", "up_proj", "down_proj", "router", bias=True)
_BLOCK = 32  # weights of one scale in MXFP4


def build(config: ModelConfig, weights: WeightLoader) -> LanguageModel:
    """The decoder of config. Raises ConvertError, ModelLoadFailed."""
    values, shape = config.values, config.shape
    builder = DecoderBuilder(config, weights)
    heads = builder.local.heads
    full, window = builder.attention_config(), read_window(values, _WINDOW)
    kinds = read_sliding_layers(values, shape.layers, lambda layer: layer % 2 == 0)
    biased = values.flag("attention_bias", default=True)
    biases = Biases(inputs=biased, output=biased)
    routing = Routing.read(values, "num_local_experts", normalize=True, softmax_first=False)
    activation = partial(
        clamped_swiglu,
        alpha=values.number("swiglu_alpha", _ALPHA),
        limit=values.number("swiglu_limit", _LIMIT),
    )

    def layer_attention(layer: int) -> AttentionConfig:
        sinks = weights.tensor(f"model.layers.{layer}.self_attn.sinks", heads)
        return replace(full, window=window if kinds[layer] else None, sinks=sinks)

    return builder.decoder(
        builder.pre_norm_layers(
            lambda layer: builder.attention(layer, layer_attention(layer), biases),
            lambda layer: builder.summed(
                _experts(builder, f"model.layers.{layer}.mlp.", routing, activation)
            ),
        )
    )


def clamped_swiglu(x: Tensor, alpha: float, limit: float) -> Tensor:
    """(up + 1) * gate * sigmoid(alpha * gate) [..., N] of x [..., 2N], gate and up; the gate is at
    most limit, up within it on both sides."""
    gate, up = x.chunk(2, dim=-1)
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (up + 1) * (gate * (gate * alpha).sigmoid())


def _experts(
    builder: DecoderBuilder, prefix: str, routing: Routing, activation: Activation
) -> StackedExperts | ListedExperts:
    """The experts of a layer: in stacks, of floats or packed, or one by one as model files have
    them."""
    if builder.weights.has(f"{prefix}experts.0.{_NAMES.gate}.weight"):
        width = builder.config.shape.feed_forward
        return read_experts(builder, prefix, _NAMES, routing, width, activation)
    weights, shape = builder.weights, builder.config.shape
    hidden, width = shape.hidden, shape.feed_forward
    router = weights.linear(f"{prefix}router", hidden, routing.experts, bias=True)
    own = builder.experts(routing.experts)
    routing, count = routing.of(own), len(own)
    stem = f"{prefix}experts."
    biases = (
        _halves(weights.tensor(f"{stem}gate_up_proj_bias", count, 2 * width)),
        weights.tensor(f"{stem}down_proj_bias", count, hidden),
    )
    if weights.has(f"{stem}gate_up_proj"):
        gate_up = weights.tensor(f"{stem}gate_up_proj", count, hidden, 2 * width)
        down = weights.tensor(f"{stem}down_proj", count, width, hidden)
        return StackedExperts(
            router,
            routing,
            _halves(gate_up.transpose(1, 2)),
            down.transpose(1, 2).contiguous(),
            activation,
            biases,
        )
    return StackedExperts(
        router,
        routing,
        _packed(builder, f"{stem}gate_up_proj", (count, 2 * width, hidden), split=True),
        _packed(builder, f"{stem}down_proj", (count, hidden, width), split=False),
        activation,
        biases,
    )


def _packed(
    builder: DecoderBuilder, name: str, size: tuple[int, int, int], *, split: bool
) -> Mxfp4Weight:
    """All experts' maps of size [experts, outputs, inputs]. split: the rows of gate and up take
    turns."""
    count, outputs, inputs = size
    if inputs % _BLOCK:
        builder.config.values.refuse(
            "quantization_config", f"MXFP4 has blocks of {_BLOCK}, a row has {inputs} values"
        )
    shape = (count, outputs, inputs // _BLOCK)
    blocks = builder.weights.stored(f"{name}_blocks", *shape, _BLOCK // 2, dtype=torch.uint8)
    scales = builder.weights.stored(f"{name}_scales", *shape, dtype=torch.uint8)
    if split:
        blocks, scales = _halves(blocks), _halves(scales)
    return Mxfp4Weight(blocks, scales)


def _halves(x: Tensor) -> Tensor:
    """x [E, 2N, ...] with its even rows, the gate's, before its odd ones."""
    return x.unflatten(1, (-1, 2)).transpose(1, 2).flatten(1, 2).contiguous()
