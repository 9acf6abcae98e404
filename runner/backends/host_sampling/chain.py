"""llama.cpp's native filters and draw over a set of candidates: steps 8 to 13 of
runner/engine/sampling.py.

Owns the native sampler chain of one request and its random numbers. Knows nothing of rows,
histories or contexts.
"""

from __future__ import annotations

import ctypes
import secrets
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as native
from numpy.typing import NDArray

from runner.types import SamplingParams

_CANDIDATE_DTYPE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])

# 0xFFFFFFFF asks llama.cpp for a random seed, so it is no seed here
_SEED_COUNT = 0xFFFFFFFF

# Below it, logit / temperature may overflow float32. At it, a logit that is higher by 0.0001
# already has all of the probability.
MIN_TEMPERATURE = 1e-6

_MIROSTAT_RANKS = 100  # of version 1, as in its paper


def seed_of(params: SamplingParams) -> int:
    """The request's seed, as llama.cpp takes it; a fresh one where it has none."""
    return secrets.randbelow(_SEED_COUNT) if params.seed is None else params.seed % _SEED_COUNT


class CandidateArray:
    """Room for candidates, shared by all chains of a backend; one thread at a time."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._data = np.zeros(capacity, _CANDIDATE_DTYPE)
        self._pointer = self._data.ctypes.data_as(native.llama_token_data_p)
        self._array = native.llama_token_data_array()
        self.reference = ctypes.byref(self._array)

    def fill(self, ids: NDArray[np.int64], logits: NDArray[np.float32], *, ordered: bool) -> None:
        """Hold these. ordered: they come by descending logit."""
        count = len(ids)
        self._data["id"][:count] = ids
        self._data["logit"][:count] = logits
        self._array.data = self._pointer
        self._array.size = count
        self._array.selected = -1
        self._array.sorted = ordered

    def selected(self) -> int:
        """The id that the chain drew."""
        return int(self._data["id"][self._begin() + self._array.selected])

    def rest(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Ids and probabilities of what the chain left."""
        begin = self._begin()
        left = self._data[begin : begin + self._array.size]
        return left["id"].copy(), left["p"].copy()

    def _begin(self) -> int:
        """Where the candidates that are left begin: xtc moves the pointer on."""
        address = ctypes.cast(self._array.data, ctypes.c_void_p).value or 0
        return (address - self._data.ctypes.data) // _CANDIDATE_DTYPE.itemsize


class SamplerChain:
    """typical_p, top_p, min_p, xtc, temperature and the draw of one request, or its mirostat."""

    def __init__(self, params: SamplingParams, vocabulary: int) -> None:
        settings = native.llama_sampler_chain_default_params()
        settings.no_perf = True
        self._handle = native.llama_sampler_chain_init(settings)
        self.close: Callable[[], object] = weakref.finalize(
            self, native.llama_sampler_free, self._handle
        )
        for sampler in _samplers(params, vocabulary):
            native.llama_sampler_chain_add(self._handle, sampler)

    def draw(self, candidates: CandidateArray) -> int:
        """Filter the candidates in place and draw one token id."""
        native.llama_sampler_apply(self._handle, candidates.reference)
        return candidates.selected()


def _samplers(params: SamplingParams, vocabulary: int) -> list[Any]:
    temperature = max(params.temperature, MIN_TEMPERATURE)
    if params.mirostat:
        return [native.llama_sampler_init_temp(temperature), _mirostat(params, vocabulary)]
    spread, exponent = params.dynatemp_range, params.dynatemp_exponent
    heat = native.llama_sampler_init_temp_ext(temperature, max(0.0, spread), exponent)
    steps = _filters(params)
    return [*steps, heat, native.llama_sampler_init_dist(seed_of(params))]


def _mirostat(params: SamplingParams, vocabulary: int) -> Any:
    seed, tau, eta = seed_of(params), params.mirostat_tau, params.mirostat_eta
    if params.mirostat == 1:
        return native.llama_sampler_init_mirostat(vocabulary, seed, tau, eta, _MIROSTAT_RANKS)
    return native.llama_sampler_init_mirostat_v2(seed, tau, eta)


def _filters(params: SamplingParams) -> list[Any]:
    steps = []
    if params.typical_p < 1:
        steps.append(native.llama_sampler_init_typical(params.typical_p, 1))
    if params.top_p < 1:
        steps.append(native.llama_sampler_init_top_p(params.top_p, 1))
    if params.min_p > 0:
        steps.append(native.llama_sampler_init_min_p(min(params.min_p, 1.0), 1))
    if params.xtc_probability > 0:
        chance, threshold = params.xtc_probability, params.xtc_threshold
        steps.append(native.llama_sampler_init_xtc(chance, threshold, 1, seed_of(params)))
    return steps
