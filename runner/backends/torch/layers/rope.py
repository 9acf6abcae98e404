"""The tables by which positions turn queries and keys, for a Rope of config.py."""

from __future__ import annotations

import torch

from kernels import ops
from runner.backends.torch.attention.paged import RopeTables
from runner.backends.torch.config import DIVISORS, RopeConfig
from runner.backends.torch.loading.weights import WeightPlacement
from runner.errors import ModelLoadFailed

# What numbers of a config raise that are of another type or kind than the formulas want
_CONFIG_ERRORS = (ArithmeticError, RuntimeError, TypeError, ValueError)


def rope_tables(rope: RopeConfig, placement: WeightPlacement) -> RopeTables:
    """Cosines and sines [placement.max_tokens, rope.width / 2], float32. Raises ModelLoadFailed
    for a scaling that is not known."""
    if rope.scaling is not None and rope.scaling["rope_type"] == DIVISORS:
        return _divided(rope, placement)
    for key in ("short_factor", "long_factor"):
        _check_factors(rope, key)
    try:
        cos, sin = ops.rope_tables(
            rope.width, rope.base, placement.max_tokens, rope.scaling, placement.device
        )
    except _CONFIG_ERRORS as error:
        raise ModelLoadFailed(f"the config's rope_scaling: {error}") from error
    if not bool(cos.isfinite().all() & sin.isfinite().all()):
        raise ModelLoadFailed("the config's rope_theta or rope_scaling gives infinite angles")
    return RopeTables(cos, sin)


def _check_factors(rope: RopeConfig, key: str) -> None:
    """A list of another length would be used without a word, were it of one number."""
    factors = (rope.scaling or {}).get(key)
    if isinstance(factors, list | tuple) and len(factors) != rope.width // 2:
        raise ModelLoadFailed(
            f"the config's rope_scaling: {key} has {len(factors)} numbers, a head of {rope.width}"
            f" turns {rope.width // 2} pairs"
        )


def _divided(rope: RopeConfig, placement: WeightPlacement) -> RopeTables:
    assert rope.scaling is not None
    divisors = torch.tensor(rope.scaling["divisors"], dtype=torch.float32)
    if divisors.numel() != rope.width // 2:
        raise ModelLoadFailed(
            f"rope_freqs.weight has {divisors.numel()} values, a head of {rope.width} turns"
            f" {rope.width // 2} pairs"
        )
    exponents = torch.arange(0, rope.width, 2, dtype=torch.float32) / rope.width
    positions = torch.arange(placement.max_tokens, dtype=torch.float32)
    angles = torch.outer(positions, 1.0 / rope.base**exponents / divisors)
    return RopeTables(angles.cos().to(placement.device), angles.sin().to(placement.device))
