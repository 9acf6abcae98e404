"""The attention of attention.h for NumPy arrays.

For the check after building and for tests: llama.cpp calls the library itself.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as GgmlType

from kernels.native.matmul import Floats, allocate_workspace


class _Vectors(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("row_bytes", ctypes.c_size_t),
        ("head_bytes", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("head_dim", ctypes.c_int64),
    )


class _Args(ctypes.Structure):
    _fields_ = (
        ("q", _Vectors),
        ("k", _Vectors),
        ("v", _Vectors),
        ("mask", ctypes.c_void_p),
        ("mask_row_bytes", ctypes.c_size_t),
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
        ("workspace", ctypes.c_void_p),
    )


@dataclass(frozen=True, slots=True)
class CacheTensor:
    """Keys or values of the cells: data [cells, heads_kv, numbers or bytes of a vector] of ggml's
    type, head_dim numbers in a vector."""

    data: npt.NDArray[Any]
    type: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class AttentionParams:
    """What happens to the scores: mask [rows, cells] is added, sinks [heads] take part in the
    softmax, max_bias is ALiBi's; 0: no ALiBi, no softcap."""

    scale: float
    mask: npt.NDArray[np.float16] | None = None
    sinks: Floats | None = None
    max_bias: float = 0.0
    softcap: float = 0.0


class AttentionLibrary:
    """A library with hearth_attention."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self._supports = library.hearth_attention_supports
        self._supports.restype = ctypes.c_bool
        self._supports.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        self._workspace_bytes = library.hearth_attention_workspace_bytes
        self._workspace_bytes.restype = ctypes.c_size_t
        self._workspace_bytes.argtypes = (ctypes.POINTER(_Args),)
        self._attention = library.hearth_attention
        self._attention.restype = None
        self._attention.argtypes = (ctypes.POINTER(_Args),)

    def supports(self, k: CacheTensor, v: CacheTensor) -> bool:
        """Whether keys and values of these types and sizes can be taken."""
        return bool(self._supports(k.type, v.type, k.head_dim, v.head_dim))

    def attend(
        self,
        q: Floats,
        k: CacheTensor,
        v: CacheTensor,
        params: AttentionParams,
        *,
        threads: int = 1,
    ) -> Floats:
        """[rows, heads, head_dim of v] for q [rows, heads, head_dim of k]. Raises ValueError for
        types and sizes that the library does not support."""
        if not self.supports(k, v):
            raise ValueError(
                f"attention of heads of {k.head_dim} and {v.head_dim} numbers"
                f" in ggml types {k.type:d} and {v.type:d} is not supported"
            )
        rows, heads = q.shape[:2]
        out = np.zeros((rows, heads, v.head_dim), np.float32)
        args = _Args(
            q=_Vectors(q.ctypes.data, *q.strides[:2], GgmlType.F32, k.head_dim),
            k=_Vectors(k.data.ctypes.data, *k.data.strides[:2], k.type, k.head_dim),
            v=_Vectors(v.data.ctypes.data, *v.data.strides[:2], v.type, v.head_dim),
            out=out.ctypes.data,
            out_row_bytes=out.strides[0],
            out_head_bytes=out.strides[1],
            rows=rows,
            cells=k.data.shape[0],
            heads=heads,
            heads_kv=k.data.shape[1],
            scale=params.scale,
            max_bias=params.max_bias,
            softcap=params.softcap,
            threads=threads,
        )
        if params.mask is not None:
            args.mask, args.mask_row_bytes = params.mask.ctypes.data, params.mask.strides[0]
        if params.sinks is not None:
            args.sinks = params.sinks.ctypes.data
        workspace = allocate_workspace(self._workspace_bytes(ctypes.byref(args)))
        args.workspace = workspace.ctypes.data
        self._attention(ctypes.byref(args))
        return out
