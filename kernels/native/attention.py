"""The attention of attention.h for NumPy arrays, for the check after building and for tests."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.native.matmul import ALIGNMENT, Floats

F32, F16, Q8_0, BF16 = 0, 1, 8, 30  # ggml's numbers


class _Vectors(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("row_bytes", ctypes.c_size_t),
        ("head_bytes", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("values", ctypes.c_int64),
    )


class _Args(ctypes.Structure):
    _fields_ = (
        ("q", _Vectors),
        ("k", _Vectors),
        ("v", _Vectors),
        ("mask", ctypes.c_void_p),
        ("mask_bytes", ctypes.c_size_t),
        ("sinks", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("out_row_bytes", ctypes.c_size_t),
        ("out_head_bytes", ctypes.c_size_t),
        ("rows", ctypes.c_int64),
        ("cells", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("heads_kv", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("max_bias", ctypes.c_float),
        ("softcap", ctypes.c_float),
        ("threads", ctypes.c_int),
        ("work", ctypes.c_void_p),
    )


@dataclass(frozen=True, slots=True)
class CacheTensor:
    """Keys or values of the cells: data [cells, heads, bytes or numbers] of ggml's type kind,
    values of them in a vector."""

    data: npt.NDArray[Any]
    kind: int
    values: int


@dataclass(frozen=True, slots=True)
class AttentionParams:
    """What happens to the scores: mask [rows, cells] is added, sinks [heads] take part."""

    scale: float
    mask: npt.NDArray[np.float16] | None = None
    sinks: Floats | None = None
    max_bias: float = 0.0
    softcap: float = 0.0


class AttentionLibrary:
    """A library with hearth_attention."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._takes = self._library.hearth_attention_takes
        self._takes.restype = ctypes.c_bool
        self._takes.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        self._work = self._library.hearth_attention_work
        self._work.restype = ctypes.c_size_t
        self._work.argtypes = (ctypes.POINTER(_Args),)
        self._attend = self._library.hearth_attention
        self._attend.restype = None
        self._attend.argtypes = (ctypes.POINTER(_Args),)

    def takes(self, k: CacheTensor, v: CacheTensor) -> bool:
        """Whether such keys and values are known."""
        return bool(self._takes(k.kind, v.kind, k.values, v.values))

    def attend(
        self,
        q: Floats,
        k: CacheTensor,
        v: CacheTensor,
        scoring: AttentionParams,
        *,
        threads: int = 1,
    ) -> Floats:
        """[rows, heads, values of v] for q [rows, heads, values]. Raises ValueError for types and
        sizes that the library does not take."""
        if not self.takes(k, v):
            raise ValueError(f"vectors of {k.values} and {v.values} values cannot be taken")
        rows, heads = q.shape[:2]
        out = np.zeros((rows, heads, v.values), np.float32)
        args = _Args(
            q=_Vectors(q.ctypes.data, *q.strides[:2], F32, k.values),
            k=_Vectors(k.data.ctypes.data, *k.data.strides[:2], k.kind, k.values),
            v=_Vectors(v.data.ctypes.data, *v.data.strides[:2], v.kind, v.values),
            out=out.ctypes.data,
            out_row_bytes=out.strides[0],
            out_head_bytes=out.strides[1],
            rows=rows,
            cells=k.data.shape[0],
            heads=heads,
            heads_kv=k.data.shape[1],
            scale=scoring.scale,
            max_bias=scoring.max_bias,
            softcap=scoring.softcap,
            threads=threads,
        )
        if scoring.mask is not None:
            args.mask, args.mask_bytes = scoring.mask.ctypes.data, scoring.mask.strides[0]
        if scoring.sinks is not None:
            args.sinks = scoring.sinks.ctypes.data
        work = np.zeros(self._work(ctypes.byref(args)) + ALIGNMENT, np.uint8)
        args.work = -(-work.ctypes.data // ALIGNMENT) * ALIGNMENT
        self._attend(ctypes.byref(args))
        return out
