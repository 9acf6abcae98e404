"""Gemma 3: Gemma3ForCausalLM, and the text part of Gemma3ForConditionalGeneration. A Gemma 2
without soft caps whose heads are normed; five of six layers see a window and turn with a base of
their own."""

from __future__ import annotations

from dataclasses import replace

from runner.backends.torch.config import (
    GEMMA_ACTIVATIONS,
    Config,
    ModelConfig,
    RopeConfig,
    check_activation,
    read_rope,
    read_sliding_layers,
    read_softcap,
    read_window,
    rope_parameters,
)
from runner.backends.torch.layers.decoder import LanguageModel
from runner.backends.torch.layers.rope import rope_tables
from runner.backends.torch.loading.decoder_builder import DecoderBuilder
from runner.backends.torch.loading.weights import WeightLoader
from runner.backends.torch.models.gemma2 import gemma, query_scale

_WINDOW, _EVERY, _LOCAL_BASE = 4096, 6, 10000.0
_LOCAL = "sliding_attention"


def build(config: ModelConfig, weights: WeightLoader) -> LanguageModel:
    """The decoder of config. Raises ConvertError, ModelLoadFailed."""
    values = config.values
    check_activation(values, "hidden_activation", *GEMMA_ACTIVATIONS)
    if values.flag("use_bidirectional_attention"):
        values.refuse("use_bidirectional_attention", "Gemma 3 embedding models are not supported")
    builder = DecoderBuilder(config, weights, offset=1.0)
    full = replace(
        builder.attention_config(),
        scale=query_scale(config),
        softcap=read_softcap(values, "attn_logit_softcapping"),
    )
    local = rope_tables(local_rope(values, config.shape.head), weights.placement)
    sliding = replace(full, rope=local, window=read_window(values, _WINDOW))
    every = values.integer("sliding_window_pattern", _EVERY)
    kinds = read_sliding_layers(values, config.shape.layers, lambda layer: (layer + 1) % every != 0)
    return gemma(
        builder,
        [sliding if kind else full for kind in kinds],
        read_softcap(values, "final_logit_softcapping"),
        head_norms=True,
    )


def local_rope(values: Config, head: int) -> RopeConfig:
    """How the layers with a window turn. Raises ConvertError."""
    base = values.number("rope_local_base_freq", _LOCAL_BASE)
    if _LOCAL not in values.group("rope_parameters").values:
        return RopeConfig(base, head, None)
    base = rope_parameters(values, _LOCAL).number("rope_theta", base)
    return replace(read_rope(values, head, _LOCAL), base=base)
