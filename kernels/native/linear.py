"""Products of a CPU's float tensors with weights as they lie in a file (linear.cpp).

Owns what is checked before native code sees a tensor. Weights are float32, float16, bfloat16,
GGUF's Q8_0, or numbers of four or eight bits, row by row at any address, so that they may be a
file's own pages. Knows no models.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from gguf import GGMLQuantizationType as GgmlType
from torch import Tensor

from kernels import native

Q8_0, I8, F8, I4 = "Q8_0", "I8", "F8_E4M3", "I4"
GGML_TYPES = {
    torch.float32: GgmlType.F32,
    torch.float16: GgmlType.F16,
    torch.bfloat16: GgmlType.BF16,
}


class _Kind(NamedTuple):
    """Weights that are no floats: the number in types.h, and blocks of so many weights in so many
    elements of dtype."""

    number: int
    weights: int
    elements: int
    dtype: torch.dtype


_KINDS = {
    Q8_0: _Kind(GgmlType.Q8_0, 32, 34, torch.uint8),
    I8: _Kind(GgmlType.I8, 1, 1, torch.int8),
    F8: _Kind(1000, 1, 1, torch.float8_e4m3fn),
    I4: _Kind(1001, 64, 36, torch.uint8),
}
_INPUT_DTYPES = (torch.float32, torch.bfloat16)


class Matrix(ctypes.Structure):
    """See linear.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("stride", ctypes.c_int64),
        ("type", ctypes.c_int32),
    )


class _LinearArgs(ctypes.Structure):
    _fields_ = (
        ("matrices", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("x", ctypes.c_void_p),
        ("x_stride", ctypes.c_int64),
        ("y", ctypes.c_void_p),
        ("y_stride", ctypes.c_int64),
        ("x_type", ctypes.c_int32),
        ("y_type", ctypes.c_int32),
        ("allow_bf16", ctypes.c_int32),
        ("threads", ctypes.c_int32),
    )


class TorchKernels:
    """The compiled library, which computes by torch's threads."""

    def __init__(self, path: Path) -> None:
        """Raises OSError for what is no library."""
        for openmp in _openmp_of_torch():
            ctypes.CDLL(openmp, ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(path))
        self.linear = self.library.hearth_linear
        self.linear.restype = ctypes.c_bool
        self.linear.argtypes = (ctypes.POINTER(_LinearArgs),)


def _openmp_of_torch() -> list[str]:
    """The GCC OpenMP that torch brings. Loaded globally, it comes before the system's; with both,
    threads of the one would spin while those of the other work."""
    package = Path(torch.__file__).parent
    folders = (package / "lib", package.parent / "torch.libs")
    return sorted(str(file) for folder in folders for file in folder.glob("libgomp*.so*"))


@cache
def torch_kernels() -> TorchKernels | None:
    """The kernels for this processor; None: they were not compiled."""
    path = native.library_path("torch")
    return None if path is None else TorchKernels(path)


def supports(weight: Tensor, kind: str | None = None) -> bool:
    """Whether weight [rows, k] of floats, or [rows, elements of a row] of a kind, can be
    multiplied: uint8 in the blocks of Q8_0 or I4, int8 for I8, float8_e4m3fn for F8."""
    if weight.device.type != "cpu" or weight.ndim != 2 or not weight.numel():
        return False
    if weight.stride(1) != 1 or weight.stride(0) < weight.shape[1]:
        return False
    if kind is None:
        return weight.dtype in GGML_TYPES
    found = _KINDS.get(kind)
    if found is None or weight.dtype != found.dtype:
        return False
    columns: int = weight.shape[1]
    return columns % found.elements == 0


class Matrices:
    """Weights of the same width k, one below the other; kinds: what they are, None: floats.

    rows: of all of them; k: weights of a row. Keeps the tensors, whose memory is used.
    """

    def __init__(
        self, kernels: TorchKernels, weights: Sequence[Tensor], kinds: Sequence[str | None]
    ) -> None:
        """Raises ValueError for weights that are not supported, and for different widths."""
        widths = {_width(weight, kind) for weight, kind in zip(weights, kinds, strict=True)}
        if len(widths) != 1:
            raise ValueError(f"{len(widths)} widths of weights, expected one: {sorted(widths)}")
        self.k = widths.pop()
        self.rows = sum(len(weight) for weight in weights)
        self.weights = tuple(weights)
        self.count = len(weights)
        self.array = (Matrix * self.count)(*map(_matrix, weights, kinds))
        self._linear = kernels.linear
        self._args = _LinearArgs(ctypes.addressof(self.array), self.count, self.k)
        self._reference = ctypes.byref(self._args)

    def multiply(self, x: Tensor, *, dtype: torch.dtype, allow_bf16: bool = False) -> Tensor:
        """[T, rows] in dtype, of x [T, k]; both float32 or bfloat16. allow_bf16: x and weights may
        be rounded to bfloat16 where that is faster. Raises ValueError for another x. One thread at
        a time."""
        if x.ndim != 2 or x.shape[1] != self.k or x.dtype not in _INPUT_DTYPES or not _on_cpu(x):
            raise ValueError(f"inputs {list(x.shape)} of {x.dtype}, expected [T, {self.k}]")
        check_output_dtype(dtype)
        if x.stride(1) != 1 or x.stride(0) < 0:
            x = x.contiguous()
        out = torch.empty((len(x), self.rows), dtype=dtype)
        args = self._args
        args.n = len(x)
        args.x, args.x_stride, args.x_type = x.data_ptr(), x.stride(0), GGML_TYPES[x.dtype]
        args.y, args.y_stride, args.y_type = out.data_ptr(), self.rows, GGML_TYPES[dtype]
        args.allow_bf16, args.threads = allow_bf16, torch.get_num_threads()
        if len(x) and not self._linear(self._reference):
            raise MemoryError(f"not enough memory for a product of {len(x)} rows")
        return out


def _on_cpu(x: Tensor) -> bool:
    return bool(x.device.type == "cpu")


def check_output_dtype(dtype: torch.dtype) -> None:
    """Raises ValueError for a dtype that outputs cannot have."""
    if dtype not in _INPUT_DTYPES:
        raise ValueError(f"outputs of {dtype}, expected float32 or bfloat16")


def _width(weight: Tensor, kind: str | None) -> int:
    if not supports(weight, kind):
        shape = list(weight.shape)
        raise ValueError(f"weights {shape} of {kind or weight.dtype} cannot be multiplied here")
    columns: int = weight.shape[1]
    return columns if kind is None else columns // _KINDS[kind].elements * _KINDS[kind].weights


def _matrix(weight: Tensor, kind: str | None) -> Matrix:
    number = GGML_TYPES[weight.dtype] if kind is None else _KINDS[kind].number
    stride = weight.stride(0) * weight.element_size()
    return Matrix(weight.data_ptr(), weight.shape[0], stride, number)
