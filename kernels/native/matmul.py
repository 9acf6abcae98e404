"""The matrix products of matmul.h for NumPy arrays.

For the check after building and for tests: llama.cpp calls the library itself.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import numpy.typing as npt

_ALIGNMENT = 64

Floats = npt.NDArray[np.float32]


class _Columns(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int64), ("count", ctypes.c_int64))


class _Matrix(ctypes.Structure):
    _fields_ = (
        ("w", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("row_bytes", ctypes.c_size_t),
        ("column_set", ctypes.c_int64),
        ("y", ctypes.c_void_p),
    )


class _Args(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("threads", ctypes.c_int),
        ("k", ctypes.c_int64),
        ("x", ctypes.c_void_p),
        ("column_sets", ctypes.c_int64),
        ("column_set", ctypes.c_void_p),
        ("matrices", ctypes.c_int64),
        ("matrix", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
    )


class MatmulLibrary:
    """A library with hearth_matmul."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self._supports = library.hearth_matmul_supports
        self._supports.restype = ctypes.c_bool
        self._supports.argtypes = (ctypes.c_int, ctypes.c_int64)
        self._workspace_bytes = library.hearth_matmul_workspace_bytes
        self._workspace_bytes.restype = ctypes.c_size_t
        self._workspace_bytes.argtypes = (
            ctypes.c_int,
            *(ctypes.c_int64,) * 3,
            ctypes.c_int,
        )
        self._matmul, self._fine = library.hearth_matmul, library.hearth_matmul_fine
        for function in (self._matmul, self._fine):
            function.restype = None
            function.argtypes = (ctypes.POINTER(_Args),)

    def supports(self, ggml_type: int, k: int) -> bool:
        """Whether rows of k values of this ggml type can be multiplied."""
        return bool(self._supports(ggml_type, k))

    def multiply(
        self,
        ggml_type: int,
        weights: list[npt.NDArray[np.uint8]],
        x: list[Floats],
        *,
        threads: int = 1,
        fine: bool = False,
    ) -> list[Floats]:
        """x[i] @ weights[i].T for every i, x[0] for all where it is the only one: weights [rows,
        bytes of a row], x [columns, k]. fine: with inputs of 16 bits. Raises ValueError for what
        the library does not support."""
        k = x[0].shape[1]
        if not self.supports(ggml_type, k):
            raise ValueError(f"rows of {k} values of ggml type {ggml_type:d} are not supported")
        sets = [0] * len(weights) if len(x) == 1 else list(range(len(weights)))
        y = [np.zeros((len(x[i]), len(w)), np.float32) for i, w in zip(sets, weights, strict=True)]
        inputs = _pointers([column for columns in x for column in columns])
        outputs = [_pointers(list(columns)) for columns in y]
        firsts = np.cumsum([0, *(len(columns) for columns in x)]).tolist()
        column_sets = (_Columns * len(x))(
            *(_Columns(first, len(columns)) for first, columns in zip(firsts, x, strict=False))
        )
        matrices = (_Matrix * len(weights))(
            *(
                _Matrix(w.ctypes.data, len(w), w.strides[0], i, ctypes.addressof(out))
                for w, i, out in zip(weights, sets, outputs, strict=True)
            )
        )
        columns = len(inputs) * (2 if fine else 1)
        size = self._workspace_bytes(ggml_type, k, columns, len(x), threads)
        workspace = allocate_workspace(size)
        args = _Args(
            ggml_type,
            threads,
            k,
            ctypes.addressof(inputs),
            len(column_sets),
            ctypes.addressof(column_sets),
            len(matrices),
            ctypes.addressof(matrices),
            workspace.ctypes.data,
        )
        (self._fine if fine else self._matmul)(ctypes.byref(args))
        return y


def allocate_workspace(size: int) -> npt.NDArray[np.uint8]:
    """`size` bytes at an aligned address."""
    memory = np.zeros(size + _ALIGNMENT, np.uint8)
    offset = -memory.ctypes.data % _ALIGNMENT
    return memory[offset : offset + size]


def _pointers(rows: list[Floats]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(rows))(*(row.ctypes.data for row in rows))
