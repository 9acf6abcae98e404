"""Phi-3 and Phi-4: Phi3ForCausalLM. Queries, keys and values are one projection, gate and up
another, as llama.cpp keeps them; two sets of frequencies for short and long contexts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from modelfile.convert.config import Config
from modelfile.convert.decoder import (
    DecoderShape,
    check_activation,
    check_unbiased,
    decoder_weights,
    hyperparameters,
    norm,
    read_decoder_shape,
)
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.plan import ComputedWeight, ConversionPlan, Weight
from modelfile.convert.rope import rope_parameters, rope_type

_LONG = ("longrope", "su")


def plan(config: Config) -> ConversionPlan:
    """What a checkpoint with this config.json holds. Raises ConvertError."""
    check_activation(config)
    check_unbiased(config, "attention_bias")
    shape = read_decoder_shape(config)
    if shape.queries != shape.hidden:
        config.refuse("head_dim", f"{shape.heads} heads of {shape.head} do not make {shape.hidden}")

    def layer_weights(layer: str) -> Iterator[Weight]:
        yield norm(layer, "input_layernorm", shape.hidden)
        fused = shape.queries + 2 * shape.keys
        yield Weight(f"{layer}self_attn.qkv_proj.weight", (fused, shape.hidden))
        yield Weight(f"{layer}self_attn.o_proj.weight", (shape.hidden, shape.queries))
        yield norm(layer, "post_attention_layernorm", shape.hidden)
        yield Weight(f"{layer}mlp.gate_up_proj.weight", (2 * shape.feed_forward, shape.hidden))
        yield Weight(f"{layer}mlp.down_proj.weight", (shape.hidden, shape.feed_forward))

    return ConversionPlan(
        architecture="phi3",
        vocabulary_size=shape.vocabulary,
        block_count=shape.layers,
        metadata=tuple(_metadata(config, shape)),
        weights=tuple(decoder_weights(shape, layer_weights)),
        computed=tuple(_factors(config, shape)),
    )


def _metadata(config: Config, shape: DecoderShape) -> Iterator[MetadataValue]:
    parameters = rope_parameters(config)
    plain = Config(
        {key: value for key, value in config.values.items() if not _stretches(key, parameters)},
        config.file,
    )
    rotated = _rotated(config, shape)
    for value in hyperparameters(plain, shape, "phi3"):
        if value.key == "phi3.rope.dimension_count":
            value = MetadataValue(value.key, "u32", rotated)
        if value.key == "phi3.rope.freq_base" and "rope_theta" in parameters.values:
            value = MetadataValue(value.key, "f32", parameters.number("rope_theta"))
        yield value
    yield MetadataValue("phi3.rope.scaling.original_context_length", "u32", _original(config))
    # llama.cpp tells Phi-4 from the others by a window of 0.
    window = 0 if config.values.get("sliding_window") is None else config.integer("sliding_window")
    yield MetadataValue("phi3.attention.sliding_window", "u32", window)
    if rope_type(parameters) in _LONG:
        yield MetadataValue("phi3.rope.scaling.attn_factor", "f32", _attention_factor(config))


def _stretches(key: str, parameters: Config) -> bool:
    return key in ("rope_scaling", "rope_parameters") and rope_type(parameters) in _LONG


def _original(config: Config) -> int:
    """The context that the model was first trained for."""
    context = config.integer("max_position_embeddings", maximum=1 << 31)
    outer = config.integer("original_max_position_embeddings", context, maximum=1 << 31)
    return rope_parameters(config).integer(
        "original_max_position_embeddings", outer, maximum=1 << 31
    )


def _attention_factor(config: Config) -> float:
    """Source: LongRoPE, https://arxiv.org/abs/2402.13753, and the model's own code."""
    parameters, original = rope_parameters(config), _original(config)
    if parameters.values.get("attention_factor") is not None:
        return parameters.number("attention_factor")
    scale = config.integer("max_position_embeddings", maximum=1 << 31) / original
    if scale <= 1.0 or original < 2:
        return 1.0
    return math.sqrt(1.0 + math.log(scale) / math.log(original))


def _rotated(config: Config, shape: DecoderShape) -> int:
    """The part of a head that is rotated."""
    parameters = rope_parameters(config)
    outer = config.number("partial_rotary_factor", 1.0)
    rotated = int(shape.head * parameters.number("partial_rotary_factor", outer))
    if rotated % 2 or not 0 < rotated <= shape.head:
        config.refuse(
            "partial_rotary_factor",
            f"{rotated} values of a head, expected an even number from 2 to {shape.head}",
        )
    return rotated


def _factors(config: Config, shape: DecoderShape) -> Iterator[ComputedWeight]:
    parameters = rope_parameters(config)
    if rope_type(parameters) not in _LONG:
        return
    for kind in ("long", "short"):
        values = parameters.numbers(f"{kind}_factor", _rotated(config, shape) // 2)
        if min(values) <= 0:
            parameters.refuse(f"{kind}_factor", "the factors must be positive")
        yield ComputedWeight(f"rope_factors_{kind}.weight", values)


PLANS = {"phi3": plan}
