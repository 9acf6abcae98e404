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


class _Columns(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int64), ("count", ctypes.c_int64))


class _Matrix(ctypes.Structure):
    _fields_ = (
        ("w", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("row_bytes", ctypes.c_size_t),
        ("columns", ctypes.c_int64),
        ("y", ctypes.c_void_p),
    )


class _Args(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("threads", ctypes.c_int),
        ("k", ctypes.c_int64),
        ("x", ctypes.c_void_p),
        ("sets", ctypes.c_int64),
        ("set", ctypes.c_void_p),
        ("matrices", ctypes.c_int64),
        ("matrix", ctypes.c_void_p),
        ("work", ctypes.c_void_p),
    )


class MatmulLibrary:
    """A library with hearth_matmul."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._takes = self._library.hearth_matmul_takes
        self._takes.restype = ctypes.c_bool
        self._takes.argtypes = (ctypes.c_int, ctypes.c_int64)
        self._work = self._library.hearth_matmul_work
        self._work.restype = ctypes.c_size_t
        self._work.argtypes = (*(ctypes.c_int64,) * 3, ctypes.c_int)
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
        """x[i] @ weights[i].T for every i, x[0] for all where it is the only one: weights [rows,
        bytes of a row], x [columns, k]. Raises ValueError for what the library does not take."""
        k = x[0].shape[1]
        if not self.takes(kind, k):
            raise ValueError(f"rows of {k} values of ggml type {kind} cannot be multiplied")
        of = [0] * len(weights) if len(x) == 1 else list(range(len(weights)))
        y = [np.zeros((len(x[at]), len(w)), np.float32) for at, w in zip(of, weights, strict=True)]
        inputs = _pointers([row for part in x for row in part])
        outputs = [_pointers(list(part)) for part in y]
        firsts = np.cumsum([0, *(len(part) for part in x)]).tolist()
        sets = (_Columns * len(x))(*(_Columns(firsts[at], len(part)) for at, part in enumerate(x)))
        matrices = (_Matrix * len(weights))(
            *(
                _Matrix(w.ctypes.data, len(w), w.strides[0], at, ctypes.addressof(out))
                for w, at, out in zip(weights, of, outputs, strict=True)
            )
        )
        work = np.zeros(self._work(k, len(inputs), len(x), threads) + ALIGNMENT, np.uint8)
        args = _Args(
            kind,
            threads,
            k,
            ctypes.addressof(inputs),
            len(sets),
            ctypes.addressof(sets),
            len(matrices),
            ctypes.addressof(matrices),
            -(-work.ctypes.data // ALIGNMENT) * ALIGNMENT,
        )
        self._matmul(ctypes.byref(args))
        return y


def _pointers(rows: list[Floats]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(rows))(*(row.ctypes.data for row in rows))
