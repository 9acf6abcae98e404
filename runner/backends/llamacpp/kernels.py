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
