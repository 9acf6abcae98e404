"""The cosines and sines of rotary position embeddings, with every kind of stretching.

Owns the frequencies of the rope types of Hugging Face's config.json (default, linear, dynamic,
llama3, yarn, longrope, su). Knows nothing of attention. Computed in float32, as transformers does.
Source: Su et al., RoFormer, 2021; Peng et al., YaRN, 2023; Ding et al., LongRoPE, 2024.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

Scaling = Mapping[str, Any]
Frequencies = tuple[Tensor, float]  # inverse frequencies [width / 2], attention factor


def rope_tables(
    width: int, base: float, length: int, scaling: Scaling | None, device: Any
) -> tuple[Tensor, Tensor]:
    """(cos, sin), float32 [length, width / 2], times the attention factor of the rope type.

    width: the rotated part of a head. scaling: rope_scaling of config.json, with rope_type.
    Where the type depends on the context (dynamic, longrope), it is length that decides, once
    for all requests, so that cached keys stay valid. ValueError: an unknown type or a missing
    number.
    """
    kind = str((scaling or {}).get("rope_type", (scaling or {}).get("type", "default")))
    if kind not in _KINDS:
        known = ", ".join(_KINDS)
        raise ValueError(f"rope_type {kind!r} is unknown; expected one of {known}")
    try:
        inverse, factor = _KINDS[kind](width, base, length, scaling or {})
    except KeyError as missing:
        raise ValueError(f"rope_scaling of type {kind!r} has no {missing}") from missing
    positions = torch.arange(length, dtype=torch.float32)
    angles = torch.outer(positions, inverse)
    return (angles.cos() * factor).to(device), (angles.sin() * factor).to(device)


def _exponents(width: int) -> Tensor:
    return torch.arange(0, width, 2, dtype=torch.float32) / width


def _default(width: int, base: float, _length: int, _scaling: Scaling) -> Frequencies:
    return 1.0 / base ** _exponents(width), 1.0


def _linear(width: int, base: float, length: int, scaling: Scaling) -> Frequencies:
    return _default(width, base, length, scaling)[0] / float(scaling["factor"]), 1.0


def _dynamic(width: int, base: float, length: int, scaling: Scaling) -> Frequencies:
    original = int(scaling["original_max_position_embeddings"])
    factor = float(scaling["factor"])
    if length > original:
        stretch = factor * length / original - (factor - 1)
        base = base * stretch ** (width / (width - 2))
    return _default(width, base, length, scaling)


def _llama3(width: int, base: float, length: int, scaling: Scaling) -> Frequencies:
    """Long waves are stretched by factor, short ones kept, the band between is mixed."""
    inverse, _ = _default(width, base, length, scaling)
    original = int(scaling["original_max_position_embeddings"])
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = original * inverse / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - kept) * inverse / float(scaling["factor"]) + kept * inverse, 1.0


def _yarn(width: int, base: float, length: int, scaling: Scaling) -> Frequencies:
    factor = float(scaling["factor"])
    inverse, _ = _default(width, base, length, scaling)
    low, high = _yarn_band(width, base, scaling)
    ramp = (torch.arange(width // 2, dtype=torch.float32) - low) / (high - low)
    kept = 1 - ramp.clamp(0, 1)
    return inverse / factor * (1 - kept) + inverse * kept, _yarn_attention(factor, scaling)


def _yarn_band(width: int, base: float, scaling: Scaling) -> tuple[float, float]:
    """The dimensions between which yarn goes over from kept to stretched."""
    original = int(scaling["original_max_position_embeddings"])

    def dimension(turns: float) -> float:
        return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low = dimension(float(scaling.get("beta_fast") or 32))
    high = dimension(float(scaling.get("beta_slow") or 1))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    return low, high if high > low else low + 0.001


def _yarn_attention(factor: float, scaling: Scaling) -> float:
    def mscale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    given = scaling.get("attention_factor")
    if given is not None:
        return float(given)
    above, below = scaling.get("mscale"), scaling.get("mscale_all_dim")
    return mscale(float(above)) / mscale(float(below)) if above and below else mscale(1.0)


def _longrope(width: int, base: float, length: int, scaling: Scaling) -> Frequencies:
    original = int(scaling["original_max_position_embeddings"])
    factors = scaling["long_factor" if length > original else "short_factor"]
    inverse = 1.0 / (torch.tensor(factors, dtype=torch.float32) * base ** _exponents(width))
    given = scaling.get("attention_factor")
    if given is not None:
        return inverse, float(given)
    max_length = float(scaling.get("max_position_embeddings") or length)
    factor = float(scaling.get("factor") or max_length / original)
    return inverse, math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0


_KINDS: dict[str, Callable[[int, float, int, Scaling], Frequencies]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,
}
