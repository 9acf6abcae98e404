"""The random numbers of sampling: a function of seed, step and token, not a stream.

So a seed gives the same tokens whatever else is in the batch, and the Triton kernel computes the
same numbers (kernels/sampling/triton.py repeats these lines). In NumPy, which has unsigned numbers
and takes a third of torch's time for arrays as short as these.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

GROUP = 128  # tokens whose probabilities are summed before the first of the two draws
# An exponential variate this small is v + v² / 2 to float32's precision; -log(1 - v) loses it.
_TINY = np.float32(1e-3)
_BELOW_ONE = np.float32(1 - 2.0**-24)

Words = NDArray[np.uint32]
Keys = NDArray[np.uint64]


def row_keys(seeds: Tensor, steps: Tensor) -> Keys:
    """A key for each row [S, 1], of seeds and steps int64 [S]: SplitMix64's finalizer over both
    (Steele et al., Fast splittable pseudorandom number generators, 2014)."""
    return _mix64(_mix64(_host(seeds).view(np.uint64)) + _host(steps).view(np.uint64))[:, None]


def exponentials(keys: Keys, numbers: Tensor) -> Tensor:
    """Exponential variates, float32 [S, N], of keys [S, 1] and the numbers of tokens or groups of
    tokens, int64 [S, N] or [N]; a group's number is below 0."""
    counter: Words = _host(numbers).astype(np.uint32) * np.uint32(0x9E3779B1)
    mixed = _mix32(counter + keys.astype(np.uint32))
    mixed = _mix32(mixed ^ (keys >> np.uint64(32)).astype(np.uint32))
    v = (mixed.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-32)
    np.minimum(v, _BELOW_ONE, out=v)
    result = np.where(v < _TINY, v + np.float32(0.5) * v * v, -np.log(1 - v))
    return torch.from_numpy(result).to(numbers.device)


def _host(tensor: Tensor) -> NDArray[Any]:
    return np.asarray(tensor.cpu().contiguous())


def _mix64(x: Keys) -> Keys:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _mix32(x: Words) -> Words:
    """MurmurHash3's finalizer."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))
