"""Quantizes a GGUF file with llama.cpp: python -m tests.benchmarks.quantize SOURCE TARGET TYPE.

A process of its own, because llama.cpp aborts rather than raises on files it dislikes.
"""

from __future__ import annotations

import ctypes
import sys

import llama_cpp

FILE_TYPES = {
    "Q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q4_K_M": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M,
}


def quantize(source: str, target: str, kind: str) -> int:
    """Write source to target in the type kind; llama.cpp's result, 0 for success."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = FILE_TYPES[kind]
    pointer = ctypes.byref(params)
    return int(llama_cpp.llama_model_quantize(source.encode(), target.encode(), pointer))


if __name__ == "__main__":
    sys.exit(quantize(*sys.argv[1:4]))
