"""The GELU that models get: BERT's by the error function, the others' as llama.cpp has it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import numpy as np
import pytest
from llama_cpp import llama_cpp as native
from numpy.typing import NDArray

from runner.backends.backend import LoadedBackend
from runner.backends.llamacpp import gelu

PLACES = (-9.5, -3.0, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, 9.5)


def values() -> NDArray[np.float64]:
    """What llama.cpp looks up for PLACES."""
    table = np.ctypeslib.as_array((ctypes.c_uint16 * (1 << 16)).in_dll(native._lib, gelu._TABLE))
    return table[np.array(PLACES, np.float16).view(np.uint16)].view(np.float16).astype(float)


def by_error_function(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def by_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def test_a_model_gets_the_gelu_that_it_was_trained_with(
    open_model: Callable[..., LoadedBackend],
) -> None:
    if native.llama_supports_gpu_offload():
        pytest.skip("a GPU has no table")
    tanh = pytest.approx([by_tanh(x) for x in PLACES], rel=1e-3, abs=1e-7)
    exact = pytest.approx([by_error_function(x) for x in PLACES], rel=1e-3, abs=1e-7)
    open_model({})
    assert values() == tanh
    open_model({"architecture": "bert", "context_length": 512, "pooling": 1}, embedding=True)
    assert values() == exact
    open_model({})
    assert values() == tanh
