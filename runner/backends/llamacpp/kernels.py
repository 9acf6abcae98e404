"""hearth's own kernels (kernels/native) in llama.cpp, as one more of ggml's backends.

llama.cpp asks it before its own for the matrix products of a graph. Registered once for the
process; every context made afterwards has it.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

from llama_cpp import llama_cpp as native

from kernels.native import library_path
from runner.backends.llamacpp.embedding import ENCODERS


@cache
def register_kernels() -> bool:
    """Register the kernels; True when they take part. False where they were not compiled, and with
    a GPU: llama.cpp lets it compute long prompts for layers that stay in memory, which it would
    not take from another backend than its own."""
    path = library_path("llamacpp")
    if path is None or native.llama_supports_gpu_offload():
        return False
    load = native._lib.ggml_backend_load
    load.restype = ctypes.c_void_p
    load.argtypes = (ctypes.c_char_p,)
    return bool(load(os.fsencode(path)))


def choose_inputs(architecture: str | None) -> None:
    """Let the products of what this process computes from now on have inputs of 16 bits for an
    encoder, and of 8 for all else. Once they are registered. Rounded to 8 bits, single words lose
    a cosine of 0.002 to the vectors of an encoder; it computes twice as much."""
    path = library_path("llamacpp")
    if path is not None:
        ctypes.CDLL(str(path)).hearth_set_fine_inputs(ctypes.c_bool(architecture in ENCODERS))
