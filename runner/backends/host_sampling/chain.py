"""Which steps of tests/sampling_definition.py a request has, and llama.cpp's native samplers for
those from typical_p to the draw, over a set of candidates.

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

# exp(-80) is the least that a float32 softmax tells from 0; log(0) would spoil the entropy
NEGLIGIBLE_NATS = 80.0

MIN_LOGIT = float(np.finfo(np.float32).min)  # banned tokens, at -inf, are below it

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
    if params.samplers is not None:
        return ("ordered",)
    return tuple(name for name, step in STEPS.items() if step.active(params))


def seed_of(params: SamplingParams) -> int:
    """The request's seed, as llama.cpp takes it; a fresh one where it has none."""
    return secrets.randbelow(_SEED_COUNT) if params.seed is None else params.seed % _SEED_COUNT


def _temperature(params: SamplingParams) -> Any:
    temperature = max(params.temperature, MIN_TEMPERATURE)
    spread, exponent = max(0.0, params.dynatemp_range), params.dynatemp_exponent
    return native.llama_sampler_init_temp_ext(temperature, spread, exponent)


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

    def cut(self, floor: Callable[[NDArray[np.float32]], float]) -> None:
        """Leave those whose logits are at least floor of the finite logits that are left."""
        begin = self._start()
        left = self._data[begin : begin + self._array.size]
        finite = left["logit"] >= MIN_LOGIT
        kept = left[finite & (left["logit"] >= floor(left["logit"][finite]))]
        self.fill(kept["id"].copy(), kept["logit"].copy(), ordered=self._array.sorted)

    def _start(self) -> int:
        """Where the candidates that are left begin: xtc moves the pointer on."""
        address = ctypes.cast(self._array.data, ctypes.c_void_p).value or 0
        return (address - self._data.ctypes.data) // _CANDIDATE_DTYPE.itemsize


class SamplerChain:
    """Native samplers of one request, one after the other."""

    def __init__(self, samplers: Sequence[Any]) -> None:
        """Takes them over."""
        settings = native.llama_sampler_chain_default_params()
        settings.no_perf = True
        self._handle = native.llama_sampler_chain_init(settings)
        self.close: Callable[[], object] = weakref.finalize(
            self, native.llama_sampler_free, self._handle
        )
        for sampler in samplers:
            native.llama_sampler_chain_add(self._handle, sampler)

    def apply(self, candidates: CandidateArray) -> None:
        """Filter the candidates in place."""
        native.llama_sampler_apply(self._handle, candidates.reference)

    def draw(self, candidates: CandidateArray) -> int:
        """Filter the candidates in place and draw one token id."""
        self.apply(candidates)
        return candidates.selected()


def drawing_chain(params: SamplingParams, steps: Sequence[str], vocabulary: int) -> SamplerChain:
    """Those of STEPS that llama.cpp does here, temperature and the draw, or mirostat."""
    if params.mirostat:
        heat = native.llama_sampler_init_temp(max(params.temperature, MIN_TEMPERATURE))
        return SamplerChain([heat, _mirostat(params, vocabulary)])
    filters = [create(params) for name in steps if (create := STEPS[name].create)]
    return SamplerChain([*filters, _temperature(params), _drawing(params)])


def _drawing(params: SamplingParams) -> Any:
    return native.llama_sampler_init_dist(seed_of(params))


class OrderedChain:
    """What params.samplers names, in its order, and the draw.

    llama.cpp's top_n_sigma leaves tokens at -inf, and its typical_p makes NaN of those: what is out
    goes before.
    """

    def __init__(self, params: SamplingParams) -> None:
        self._params = params
        self._parts: list[tuple[str, SamplerChain]] = []
        for name in params.samplers or ():
            if name == "temperature":
                self._parts.append((name, SamplerChain([_temperature(params)])))
            elif name == "top_k":
                top_k = native.llama_sampler_init_top_k(params.top_k)
                self._parts.append((name, SamplerChain([top_k])))
            elif (create := STEPS[name].create) is not None:
                active = STEPS[name].active(params)
                self._parts.append((name, SamplerChain([create(params)] if active else [])))
            else:
                self._parts.append((name, SamplerChain([])))
        self._parts.append(("draw", SamplerChain([_drawing(params)])))

    def draw(self, candidates: CandidateArray) -> int:
        """See SamplerChain."""
        sigmas = self._params.top_n_sigma
        for name, chain in self._parts:
            if name == "typical_p":
                candidates.cut(lambda logits: float(logits.max()) - NEGLIGIBLE_NATS)
            elif name == "top_n_sigma" and sigmas > 0:
                candidates.cut(
                    lambda logits: float(logits.max()) - sigmas * logits.std(dtype=np.float64)
                )
            chain.apply(candidates)
        return candidates.selected()

    def close(self) -> None:
        """Give native memory back. Calling it twice is allowed."""
        for _, chain in self._parts:
            chain.close()


def _mirostat(params: SamplingParams, vocabulary: int) -> Any:
    seed, tau, eta = seed_of(params), params.mirostat_tau, params.mirostat_eta
    if params.mirostat == 1:
        return native.llama_sampler_init_mirostat(vocabulary, seed, tau, eta, _MIROSTAT_RANKS)
    return native.llama_sampler_init_mirostat_v2(seed, tau, eta)
