"""Rotary position embeddings in config.json: base, and how they are scaled to a long context.

Both spellings are read: rope_theta beside rope_scaling, and rope_parameters of newer checkpoints.
"""

from __future__ import annotations

import math

from modelfile.convert.config import Config
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.plan import ComputedWeight

ROPE_FREQUENCIES = "rope_freqs.weight"
_PLAIN = ("default", "dynamic")  # dynamic changes nothing within the trained context


def rope_parameters(config: Config, layers: str = "full_attention") -> Config:
    """The parameters that hold for a kind of layers. Raises ConvertError."""
    parameters = config.group("rope_parameters")
    if layers in parameters.values:
        return parameters.group(layers)
    if parameters.values and "full_attention" not in parameters.values:
        return parameters
    return config.group("rope_scaling")


def rope_base(config: Config, default: float) -> float:
    """theta. Raises ConvertError."""
    return rope_parameters(config).number("rope_theta", config.number("rope_theta", default))


def rope_type(parameters: Config) -> str:
    """ "default" where nothing is stretched."""
    kind = parameters.values.get("rope_type", parameters.values.get("type"))
    return kind.lower() if isinstance(kind, str) else "default"


def rope_scaling(config: Config, architecture: str) -> tuple[MetadataValue, ...]:
    """Metadata of linear and yarn stretching. Raises ConvertError for a kind that llama.cpp
    does not know."""
    parameters = rope_parameters(config)
    kind, prefix = rope_type(parameters), f"{architecture}.rope.scaling."
    if kind in _PLAIN or kind == "llama3":
        return ()
    if kind not in ("linear", "yarn"):
        parameters.refuse("rope_type", f"{kind!r} is not supported for this architecture")
    found = [
        MetadataValue(f"{prefix}type", "string", kind),
        MetadataValue(f"{prefix}factor", "f32", parameters.number("factor")),
    ]
    if kind == "yarn":
        found += _yarn(config, parameters, prefix)
    return tuple(found)


def llama3_frequencies(config: Config, width: int, base: float) -> tuple[ComputedWeight, ...]:
    """The divisors of Llama 3.1's frequencies, one for each pair of a head; none where the
    checkpoint does not use them. Source: the Llama 3.1 model card. Raises ConvertError."""
    parameters = rope_parameters(config)
    if rope_type(parameters) != "llama3":
        return ()
    factor = parameters.number("factor", 8.0)
    low, high = parameters.number("low_freq_factor", 1), parameters.number("high_freq_factor", 4)
    context = parameters.number("original_max_position_embeddings", 8192)
    if min(factor, low, high, context, base) <= 0 or low == high:
        parameters.refuse("factor", "the factors of llama3 scaling must be positive and different")
    divisors = []
    for pair in range(0, width, 2):
        turns = context * base ** (-pair / width) / (2 * math.pi)  # over the old context
        share = min(1.0, max(0.0, (turns - low) / (high - low)))
        divisors.append(1.0 / (share + (1.0 - share) / factor))
    return (ComputedWeight(ROPE_FREQUENCIES, tuple(divisors)),)


def _yarn(config: Config, parameters: Config, prefix: str) -> list[MetadataValue]:
    context = config.integer("max_position_embeddings", maximum=1 << 31)
    found = [
        MetadataValue(
            f"{prefix}original_context_length",
            "u32",
            parameters.integer("original_max_position_embeddings", context, maximum=1 << 31),
        )
    ]
    for key, name in (
        ("attention_factor", "yarn_attn_factor"),
        ("beta_fast", "yarn_beta_fast"),
        ("beta_slow", "yarn_beta_slow"),
    ):
        if parameters.values.get(key) is not None:
            found.append(MetadataValue(prefix + name, "f32", parameters.number(key)))
    return found
