"""The activation GELU of encoders in llama.cpp, as they were trained.

BERT's is x times the normal distribution's share below x. llama.cpp computes its approximation by
tanh for every model, which lets vectors differ by 3e-4 from those of the model's authors. On a
processor it looks the values up in a table of all float16 numbers; what is in it is chosen here.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache

import numpy as np
from llama_cpp import llama_cpp as native
from numpy.typing import NDArray

_TABLE = "ggml_table_gelu_f16"
# Architectures whose authors compute it by the error function. Those of Gemma mean tanh.
_BY_ERROR_FUNCTION = frozenset(
    ("bert", "jina-bert-v2", "jina-bert-v3", "modern-bert", "nomic-bert-moe")
)


def choose_gelu(architecture: str | None) -> None:
    """Let what this process computes from now on have the GELU of the architecture. The library
    must have loaded a model before. Where its table cannot be found, nothing is changed."""
    exact = architecture in _BY_ERROR_FUNCTION
    if not exact and not _tables.cache_info().currsize:
        return  # it is as llama.cpp made it
    tables = _tables()
    if tables is not None:
        table, by_tanh, by_error_function = tables
        table[:] = by_error_function if exact else by_tanh


Table = NDArray[np.uint16]


@cache
def _tables() -> tuple[Table, Table, Table] | None:
    """llama.cpp's own, a copy of it as it was, and the one by the error function."""
    try:
        table = np.ctypeslib.as_array((ctypes.c_uint16 * (1 << 16)).in_dll(native._lib, _TABLE))
    except ValueError:
        return None
    exact = table.copy()
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    used = np.abs(values) < 10  # beyond it llama.cpp takes 0 or x itself
    gelu = [0.5 * x * (1 + math.erf(x / math.sqrt(2))) for x in values[used].tolist()]
    exact[used] = np.array(gelu, np.float16).view(np.uint16)
    return table, table.copy(), exact
