"""The matrix products of matmul.h for NumPy arrays.

For the check after building and for tests: llama.cpp calls the library itself.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64

Floats = npt.NDArray[np.float32]


class _Group(ctypes.Structure):
    _fields_ = (("w", ctypes.c_void_p), ("columns", ctypes.c_int64))


class _Args(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("threads", ctypes.c_int),
        ("rows", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("row_bytes", ctypes.c_size_t),
        ("groups", ctypes.c_int64),
        ("group", ctypes.c_void_p),
        ("x", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("work", ctypes.c_void_p),
    )


class Products:
    """A library with hearth_matmul."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._takes = self._library.hearth_matmul_takes
        self._takes.restype = ctypes.c_bool
        self._takes.argtypes = (ctypes.c_int, ctypes.c_int64)
        self._work = self._library.hearth_matmul_work
        self._work.restype = ctypes.c_size_t
        self._work.argtypes = (ctypes.c_int64,) * 3
        self._matmul = self._library.hearth_matmul
        self._matmul.restype = None
        self._matmul.argtypes = (ctypes.POINTER(_Args),)

    def takes(self, kind: int, k: int) -> bool:
        """Whether rows of k values of ggml's type kind can be multiplied."""
        return bool(self._takes(kind, k))

    def multiply(
        self,
        kind: int,
        weights: list[npt.NDArray[np.uint8]],
        x: list[Floats],
        *,
        threads: int = 1,
    ) -> list[Floats]:
        """x[i] @ weights[i].T for every i: weights [rows, bytes of a row] of one shape, x
        [columns, k]. Raises ValueError for what the library does not take."""
        rows, k = weights[0].shape[0], x[0].shape[1]
        if not self.takes(kind, k):
            raise ValueError(f"rows of {k} values of ggml type {kind} cannot be multiplied")
        y = [np.zeros((len(part), rows), np.float32) for part in x]
        inputs = [row.ctypes.data for part in x for row in part]
        outputs = [row.ctypes.data for part in y for row in part]
        pairs = zip(weights, x, strict=True)
        groups = [_Group(matrix.ctypes.data, len(part)) for matrix, part in pairs]
        work = np.zeros(self._work(k, len(inputs), len(groups)) + ALIGNMENT, np.uint8)
        group_array = (_Group * len(groups))(*groups)
        x_array = (ctypes.c_void_p * len(inputs))(*inputs)
        y_array = (ctypes.c_void_p * len(outputs))(*outputs)
        args = _Args(
            kind,
            threads,
            rows,
            k,
            weights[0].strides[0],
            len(groups),
            ctypes.addressof(group_array),
            ctypes.addressof(x_array),
            ctypes.addressof(y_array),
            -(-work.ctypes.data // ALIGNMENT) * ALIGNMENT,
        )
        self._matmul(ctypes.byref(args))
        return y
