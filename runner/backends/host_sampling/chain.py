"""Which steps of runner/engine/sampling.py a request has, and llama.cpp's native samplers for those
from typical_p to the draw, over a set of candidates.

Owns the native sampler chain of one request and its random numbers. Knows nothing of rows,
histories or contexts.
"""

from __future__ import annotations

import ctypes
import secrets
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

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


class Step(NamedTuple):
    """active: whether a request has it. create: llama.cpp's sampler for it; None where the step is
    done before the chain or with another."""

    active: Callable[[SamplingParams], bool]
    create: Callable[[SamplingParams], Any] | None = None


# All between the penalties and the draw, in their order; mirostat takes the place of them all
STEPS: Final[Mapping[str, Step]] = MappingProxyType(
    {
        "top_n_sigma": Step(lambda params: params.top_n_sigma > 0),
        "top_k": Step(lambda params: params.top_k > 0),
        "typical_p": Step(
            lambda params: params.typical_p < 1,
            lambda params: native.llama_sampler_init_typical(params.typical_p, 1),
        ),
        "top_p": Step(
            lambda params: params.top_p < 1,
            lambda params: native.llama_sampler_init_top_p(params.top_p, 1),
        ),
        "min_p": Step(
            lambda params: params.min_p > 0,
            lambda params: native.llama_sampler_init_min_p(min(params.min_p, 1.0), 1),
        ),
        "xtc": Step(
            lambda params: params.xtc_probability > 0,
            lambda params: native.llama_sampler_init_xtc(
                params.xtc_probability, params.xtc_threshold, 1, seed_of(params)
            ),
        ),
        "dynatemp": Step(lambda params: params.dynatemp_range > 0),
    }
)


def active_steps(params: SamplingParams) -> tuple[str, ...]:
    """The names of the steps that the request has, in their order."""
    if params.mirostat:
        return ("mirostat",)
    return tuple(name for name, step in STEPS.items() if step.active(params))


def seed_of(params: SamplingParams) -> int:
    """The request's seed, as llama.cpp takes it; a fresh one where it has none."""
    return secrets.randbelow(_SEED_COUNT) if params.seed is None else params.seed % _SEED_COUNT


class CandidateArray:
    """The memory of candidates, shared by all chains of a backend; one thread at a time."""

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
        return int(self._data["id"][self._start() + self._array.selected])

    def remaining(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Ids and probabilities of what the chain left."""
        begin = self._start()
        left = self._data[begin : begin + self._array.size]
        return left["id"].copy(), left["p"].copy()

    def _start(self) -> int:
        """Where the candidates that are left begin: xtc moves the pointer on."""
        address = ctypes.cast(self._array.data, ctypes.c_void_p).value or 0
        return (address - self._data.ctypes.data) // _CANDIDATE_DTYPE.itemsize


class SamplerChain:
    """The native samplers of one request: some of STEPS, temperature and the draw, or mirostat."""

    def __init__(self, params: SamplingParams, steps: Sequence[str], vocabulary: int) -> None:
        """steps: those of STEPS that llama.cpp does here."""
        settings = native.llama_sampler_chain_default_params()
        settings.no_perf = True
        self._handle = native.llama_sampler_chain_init(settings)
        self.close: Callable[[], object] = weakref.finalize(
            self, native.llama_sampler_free, self._handle
        )
        for sampler in _samplers(params, steps, vocabulary):
            native.llama_sampler_chain_add(self._handle, sampler)

    def draw(self, candidates: CandidateArray) -> int:
        """Filter the candidates in place and draw one token id."""
        native.llama_sampler_apply(self._handle, candidates.reference)
        return candidates.selected()


def _samplers(params: SamplingParams, steps: Sequence[str], vocabulary: int) -> list[Any]:
    temperature = max(params.temperature, MIN_TEMPERATURE)
    if params.mirostat:
        return [native.llama_sampler_init_temp(temperature), _mirostat(params, vocabulary)]
    filters = [create(params) for name in steps if (create := STEPS[name].create)]
    spread, exponent = max(0.0, params.dynatemp_range), params.dynatemp_exponent
    heat = native.llama_sampler_init_temp_ext(temperature, spread, exponent)
    return [*filters, heat, native.llama_sampler_init_dist(seed_of(params))]


def _mirostat(params: SamplingParams, vocabulary: int) -> Any:
    seed, tau, eta = seed_of(params), params.mirostat_tau, params.mirostat_eta
    if params.mirostat == 1:
        return native.llama_sampler_init_mirostat(vocabulary, seed, tau, eta, _MIROSTAT_RANKS)
    return native.llama_sampler_init_mirostat_v2(seed, tau, eta)
