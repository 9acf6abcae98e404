"""The LoRA adapters of adapters.h, which act in llama.cpp's graphs, from NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as GgmlType

TILE = 16  # HEARTH_LORA_TILE
_BLOCK = 32  # of Q8_0
_LARGEST = float(np.finfo(np.float16).max)

Floats = npt.NDArray[np.float32]


class AdapterUse(NamedTuple):
    """See hearth_adapter_use."""

    token: int
    output: int
    adapter: int
    scale: float


_USE = np.dtype([("token", "i8"), ("output", "i8"), ("adapter", "i4"), ("scale", "f4")], align=True)


class _Pair(ctypes.Structure):
    _fields_ = (
        ("columns", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("rank", ctypes.c_int64),
        ("narrow", ctypes.c_int64),
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("b_scale", ctypes.c_void_p),
    )


class AdapterLibrary:
    """A library that llama.cpp has for a backend. It keeps the arrays of the adapters."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self._put = library.hearth_adapters_put
        self._put.argtypes = (ctypes.c_char_p, ctypes.c_int32, ctypes.POINTER(_Pair))
        self._remove = library.hearth_adapters_remove
        self._remove.argtypes = (ctypes.c_int32,)
        self._use = library.hearth_adapters_use
        self._use.argtypes = (ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
        for function in (self._put, self._remove, self._use):
            function.restype = None
        self._arrays: dict[int, list[npt.NDArray[Any]]] = {}

    def put(self, tensor: str, adapter: int, a: Floats, b: Floats, *, narrow: bool = False) -> None:
        """Let an adapter add b @ a @ x to the tensor's product with x. a: [rank, in], b:
        [out, rank]. narrow: in eight bits rather than 16, where the shape allows. Raises
        OverflowError for numbers that float16 does not have."""
        for part in (a, b):
            if not np.abs(part).max(initial=0.0) <= _LARGEST:
                raise OverflowError(f"the adapter of {tensor} has numbers beyond {_LARGEST:g}")
        (rank, columns), rows = a.shape, len(b)
        narrow = narrow and columns % _BLOCK == 0
        padded = np.zeros((-(-rows // TILE) * TILE, rank), np.float32)
        padded[:rows] = b
        scales = np.ones(len(padded), np.float32)
        if narrow:
            scales = np.abs(padded).max(axis=1, initial=0.0) / np.float32(127)
            padded = np.rint(padded / np.where(scales, scales, 1)[:, None])
        tiles = padded.reshape(-1, TILE, rank).swapaxes(1, 2).astype(np.int8 if narrow else "f2")
        down = gguf.quantize(a, GgmlType.Q8_0) if narrow else a.astype(np.float16)
        arrays = [np.ascontiguousarray(each) for each in (down, tiles, scales)]
        self._arrays.setdefault(adapter, []).extend(arrays)
        pair = _Pair(columns, rows, rank, narrow, *(each.ctypes.data for each in arrays))
        self._put(tensor.encode(), adapter, ctypes.byref(pair))

    def remove(self, adapter: int) -> None:
        """Its memory is free; no use may name it any more."""
        self._remove(adapter)
        self._arrays.pop(adapter, None)

    def use(self, tokens: int, outputs: int, uses: Sequence[AdapterUse]) -> None:
        """See hearth_adapters_use."""
        given = np.array(uses, _USE)
        self._use(tokens, outputs, given.ctypes.data, len(given))
