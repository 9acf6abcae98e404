"""Gemma 3: Gemma3ForCausalLM, and the text part of Gemma3ForConditionalGeneration.

Five of six layers have sliding-window attention and their own RoPE base. Norms are stored as their
difference from one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from modelfile.convert.architectures.gemma2 import ACTIVATIONS, NORMS, check_query_scale
from modelfile.convert.config import Config
from modelfile.convert.decoder import (
    DecoderShape,
    attention,
    check_activation,
    check_unbiased,
    decoder_plan,
    feed_forward,
    head_norms,
    norm,
    read_decoder_shape,
)
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.plan import ConversionPlan, Weight
from modelfile.convert.rope import rope_parameters

_SHIFT = 1.0
DEFAULTS: Final = {  # of the configuration class, which small checkpoints leave out
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
}
_VISION: Final = ("vision_tower.", "multi_modal_projector.", "vision_model.")


def plan(config: Config) -> ConversionPlan:
    """What a checkpoint with this config.json holds. Raises ConvertError."""
    if "text_config" in config.values:
        outer = {key: value for key, value in config.values.items() if key in DEFAULTS}
        text = {**DEFAULTS, **outer, **config.group("text_config").values}
        config = Config(text, f"{config.file}: text_config")
    check_activation(config, "hidden_activation", *ACTIVATIONS)
    check_unbiased(config, "attention_bias")
    if config.flag("use_bidirectional_attention"):
        config.refuse("use_bidirectional_attention", "Gemma 3 embedding models are not supported")
    shape = read_decoder_shape(config, head=256, tied=True)
    check_query_scale(config, shape, largest_layers=62)

    def layer_weights(layer: str) -> Iterator[Weight]:
        for name in NORMS:
            yield norm(layer, name, shape.hidden, _SHIFT)
        yield from attention(layer, shape)
        yield from head_norms(layer, shape, _SHIFT)
        yield from feed_forward(layer, shape)

    return decoder_plan(
        config,
        shape,
        "gemma3",
        layer_weights,
        metadata=_local(config, shape),
        base=1e6,
        shift=_SHIFT,
        rename=text_part,
    )


def _local(config: Config, shape: DecoderShape) -> Iterator[MetadataValue]:
    """What holds for the layers with a window, and which these are."""
    cap = config.values.get("final_logit_softcapping")
    if cap is not None:
        yield MetadataValue(
            "gemma3.final_logit_softcapping", "f32", config.number("final_logit_softcapping")
        )
    kinds = _layer_kinds(config, shape.layers)
    if not any(kinds):
        return
    base = config.number("rope_local_base_freq", 10000.0)
    if "sliding_attention" in config.group("rope_parameters").values:
        base = rope_parameters(config, "sliding_attention").number("rope_theta", base)
    window = config.integer("sliding_window", 4096, maximum=1 << 31)
    yield MetadataValue("gemma3.rope.freq_base_swa", "f32", base)
    yield MetadataValue("gemma3.attention.sliding_window", "u32", window)
    yield MetadataValue("gemma3.attention.sliding_window_pattern", "bools", kinds)


def _layer_kinds(config: Config, layers: int) -> tuple[bool, ...]:
    """For each layer, whether it looks at a window."""
    named = config.values.get("layer_types")
    if isinstance(named, list):
        if len(named) != layers or not set(named) <= {"sliding_attention", "full_attention"}:
            config.refuse("layer_types", f"expected {layers} of sliding or full attention")
        return tuple(name == "sliding_attention" for name in named)
    every = config.integer("sliding_window_pattern", 6, maximum=1024)
    return tuple((number + 1) % every != 0 for number in range(layers))


def text_part(name: str) -> str | None:
    """The name without what marks the text part; None for the parts that see."""
    short = name.removeprefix("model.")
    if short.startswith(_VISION):
        return None
    if short.startswith("language_model."):
        short = short.removeprefix("language_model.")
        return short if short.startswith(("model.", "lm_head.")) else f"model.{short}"
    return name


PLANS = {"gemma3": plan, "gemma3_text": plan}
