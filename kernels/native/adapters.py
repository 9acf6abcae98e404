"""The LoRA adapters of adapters.h, which act in llama.cpp's graphs, from NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kernels.native.lora import LARGEST, Format, LoraMatrices, Pair, has_f16, packed_pair


class AdapterUse(NamedTuple):
    """See hearth_adapter_use."""

    token: int
    output: int
    adapter: int
    scale: float


_USE = np.dtype([("token", "i8"), ("output", "i8"), ("adapter", "i4"), ("scale", "f4")], align=True)


class AdapterLibrary:
    """A library that llama.cpp has for a backend. It keeps the arrays of the adapters."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self._put = library.hearth_adapters_put
        self._put.argtypes = (ctypes.c_char_p, ctypes.c_int32, ctypes.POINTER(Pair))
        self._remove = library.hearth_adapters_remove
        self._remove.argtypes = (ctypes.c_int32,)
        self._use = library.hearth_adapters_use
        self._use.argtypes = (ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
        for function in (self._put, self._remove, self._use):
            function.restype = None
        self._arrays: dict[int, list[npt.NDArray[Any]]] = {}

    def put(
        self, tensor: str, adapter: int, matrices: LoraMatrices, *, narrow: bool = False
    ) -> None:
        """Let an adapter add to the tensor's product with x. narrow: in eight bits rather than 16,
        where the shape allows. Raises OverflowError for numbers that float16 does not have."""
        if not has_f16(matrices):
            raise OverflowError(f"the adapter of {tensor} has numbers beyond {LARGEST:g}")
        pair, arrays = packed_pair(matrices, Format.BYTES if narrow else Format.F16)
        self._arrays.setdefault(adapter, []).extend(arrays)
        self._put(tensor.encode(), adapter, ctypes.byref(pair))

    def remove(self, adapter: int) -> None:
        """Its memory is free; no use may name it any more."""
        self._remove(adapter)
        self._arrays.pop(adapter, None)

    def use(self, tokens: int, outputs: int, uses: Sequence[AdapterUse]) -> None:
        """See hearth_adapters_use."""
        given = np.array(uses, _USE)
        self._use(tokens, outputs, given.ctypes.data, len(given))
