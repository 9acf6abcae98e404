"""A tensor in the midst of a computation, as llama.cpp's callback gives it.

Owns the layout of ggml_tensor (ggml.h) and the way to its values, wherever they are. Knows
nothing of what they are for.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray


class GgmlTensor(ctypes.Structure):
    """ggml_tensor up to its name. ne: elements, the fastest dimension first; nb: strides in
    bytes; src: what it is computed from."""


GgmlTensor._fields_ = [
    ("type", ctypes.c_int),
    ("buffer", ctypes.c_void_p),
    ("ne", ctypes.c_int64 * 4),
    ("nb", ctypes.c_size_t * 4),
    ("op", ctypes.c_int),
    ("op_params", ctypes.c_int32 * 16),
    ("flags", ctypes.c_int32),
    ("src", ctypes.POINTER(GgmlTensor) * 10),
    ("view_src", ctypes.POINTER(GgmlTensor)),
    ("view_offs", ctypes.c_size_t),
    ("data", ctypes.c_void_p),
    ("name", ctypes.c_char * 64),
]


def tensor_at(address: int) -> Any:
    """The tensor at a native address."""
    return ctypes.cast(address, ctypes.POINTER(GgmlTensor)).contents


def operation(tensor: Any) -> str:
    """How it is computed, such as MUL_MAT."""
    return _op_name(int(tensor.op))


def weight_name(tensor: Any) -> str:
    """A weight's name; the copy of one on another device is called DEVICE#name#number."""
    name = bytes(tensor.name).decode("utf-8", "replace")
    parts = name.split("#")
    return parts[1] if len(parts) > 2 else name


def values(tensor: Any, kind: type[np.generic]) -> NDArray[Any]:
    """A copy of the values, the slowest dimension first. kind: their 4-byte type."""
    size = sum((count - 1) * step for count, step in zip(tensor.ne, tensor.nb, strict=True)) + 4
    raw = np.empty(size, np.uint8)
    source = ctypes.c_void_p(ctypes.addressof(tensor))
    _library().ggml_backend_tensor_get(source, ctypes.c_void_p(raw.ctypes.data), 0, size)
    shape, strides = tuple(tensor.ne)[::-1], tuple(tensor.nb)[::-1]
    return np.lib.stride_tricks.as_strided(raw.view(kind), shape, strides)


@cache
def _op_name(number: int) -> str:
    name: bytes = _library().ggml_op_name(number)
    return name.decode()


@cache
def _library() -> Any:
    folder = Path(llama_cpp.__file__).parent / "lib"
    found = sorted(path for path in folder.iterdir() if "ggml-base" in path.name)
    library = ctypes.CDLL(str(found[0]))
    library.ggml_op_name.restype = ctypes.c_char_p
    library.ggml_op_name.argtypes = [ctypes.c_int]
    library.ggml_backend_tensor_get.restype = None
    library.ggml_backend_tensor_get.argtypes = [
        *(ctypes.c_void_p, ctypes.c_void_p),
        *(ctypes.c_size_t, ctypes.c_size_t),
    ]
    return library
