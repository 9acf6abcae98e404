"""A step on a CPU in one native call, where the model is one like Llama.

A step of few tokens is bound by the number of operations: ember's are about 150, each of some
microseconds.
Owns which models and steps are computed so; all others go through their modules, whose numbers
these are. Knows no sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernels import ops
from kernels.native.decode import (
    HEAD_DIM_MULTIPLE,
    DecoderLayer,
    DecoderModel,
    DecodeStep,
    LayerShape,
    NativeDecoder,
    Projection,
)
from kernels.native.linear import supports
from runner.backends.torch.attention.cpu import CpuAttentionStep
from runner.backends.torch.attention.paged import LayerCache
from runner.backends.torch.layers.adapted_linear import ActingAdapters, AdaptedLinear, base_of
from runner.backends.torch.layers.decoder import (
    Decoder,
    GatedFeedForward,
    PreNormLayer,
    SelfAttention,
)
from runner.backends.torch.layers.linear import RmsNorm, TokenEmbedding
from runner.backends.torch.layers.native_linear import (
    NativeLinear,
    WeightRows,
    create_matrices,
    native_kernels,
)

Tensor = Any
# Each token attends by itself here: with more of them and a longer context, torch's attention, that
# takes blocks of tokens, is faster. Prompts of 256 and 900 tokens take 0.8 of its time so.
_MAX_TOKENS, _MAX_MEAN_CONTEXT = 32, 1024
_CACHE_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class FusedDecoder:
    """What the model's forward gives, for steps that fit."""

    def __init__(self, native: NativeDecoder, dtype: Any, acting: ActingAdapters) -> None:
        """dtype: of the hidden states. acting: the adapters of the model's maps."""
        self._native = native
        self._dtype = dtype
        self._acting = acting

    def fits(self, step: CpuAttentionStep) -> bool:
        """Whether forward is the faster way for this step."""
        tokens = len(step.positions)
        if tokens <= _MAX_TOKENS:
            return True
        return int((step.lengths * np.diff(step.starts)).sum()) <= _MAX_MEAN_CONTEXT * tokens

    def forward(self, tokens: Tensor, step: CpuAttentionStep) -> Tensor:
        """See backend.LanguageModel.forward."""
        tables, starts = torch.from_numpy(step.tables), torch.from_numpy(step.starts)
        given = DecodeStep(tokens, step.positions, step.slots, tables, starts, self._acting.native)
        return self._native.forward(given, self._dtype)


def fuse(model: object, caches: Sequence[LayerCache]) -> FusedDecoder | None:
    """The same model in one call; None for a model or a cache that is not computed so."""
    if not isinstance(model, Decoder) or len(caches) != len(model.layers) or not caches:
        return None
    embedding = model.embedding
    if not isinstance(embedding, TokenEmbedding):
        return None
    if embedding.scale is not None or embedding.dtype is None:
        return None
    kernels = native_kernels(embedding.dtype, embedding.weight.device)
    if kernels is None or not supports(embedding.weight, embedding.kind):
        return None
    pairs = [_fusible_parts(layer) for layer in model.layers]
    known = [pair for pair in pairs if pair is not None]
    if len(known) != len(pairs) or not all(map(_plain, caches)):
        return None
    attention, feed_forward = known[0]
    given = attention.shape
    if given.head % HEAD_DIM_MULTIPLE:
        return None
    native = DecoderModel(
        LayerShape(given.hidden, given.heads, given.heads_kv, given.head, given.feed_forward),
        [_layer(one, cache) for one, cache in zip(model.layers, caches, strict=True)],
        create_matrices(kernels, [WeightRows(embedding.weight, embedding.kind)]),
        _weight(model.norm),
        epsilon=model.norm.epsilon,
        allow_bf16=_linear(feed_forward.down).narrow,
    )
    adapted = attention.output
    acting = adapted.acting if isinstance(adapted, AdaptedLinear) else ActingAdapters()
    return FusedDecoder(NativeDecoder(kernels, native), embedding.dtype, acting)


def _fusible_parts(layer: object) -> tuple[SelfAttention, GatedFeedForward] | None:
    """The parts of a layer that is computed so."""
    if not isinstance(layer, PreNormLayer):
        return None
    attention, feed_forward = layer.attention, layer.feed_forward
    if not isinstance(feed_forward, GatedFeedForward):
        return None
    maps = (attention.projections, attention.output, feed_forward.gate_up, feed_forward.down)
    config = attention.config
    if not all(map(_fusible, maps)) or feed_forward.activation is not ops.silu_mul:
        return None
    return (attention, feed_forward) if config.softcap is None and config.sinks is None else None


def _fusible(linear: object) -> bool:
    if isinstance(linear, AdaptedLinear):
        return linear.native is not None and _fusible(linear.base)
    return isinstance(linear, NativeLinear) and linear.scales is None


def _plain(cache: LayerCache) -> bool:
    return cache.scales is None and cache.keys.dtype in _CACHE_DTYPES


def _layer(layer: Any, cache: LayerCache) -> DecoderLayer:
    attention, feed_forward, config = layer.attention, layer.feed_forward, layer.attention.config
    return DecoderLayer(
        qkv=_map(attention.projections),
        output=_map(attention.output),
        gate_up=_map(feed_forward.gate_up),
        down=_map(feed_forward.down),
        attention_norm=_weight(layer.input_norm),
        feed_forward_norm=_weight(layer.feed_forward_norm),
        q_norm=attention.query_norm and _weight(attention.query_norm),
        k_norm=attention.key_norm and _weight(attention.key_norm),
        cos=config.rope.cos,
        sin=config.rope.sin,
        k_cache=cache.keys,
        v_cache=cache.values,
        window=config.window,
        scale=config.scale,
    )


def _linear(given: Any) -> NativeLinear:
    linear = base_of(given)
    assert isinstance(linear, NativeLinear)
    return linear


def _map(given: Any) -> Projection:
    linear = _linear(given)
    adapters = given.native if isinstance(given, AdaptedLinear) else None
    return Projection(linear.matrices, linear.bias, adapters)


def _weight(norm: RmsNorm) -> Tensor:
    """What it multiplies by."""
    return norm.weight.float() + norm.offset
