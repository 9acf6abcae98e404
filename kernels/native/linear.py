"""Products of a CPU's float tensors with weights as they lie in a file (linear.cpp).

Owns what is checked before native code sees a tensor. Weights are float32, float16, bfloat16 or
GGUF's Q8_0, row by row at any address, so that they may be a file's own pages. Knows no models.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from kernels import native

LIBRARY = "torch"
Q8_0 = "Q8_0"
_BLOCK_WEIGHTS, _BLOCK_BYTES = 32, 34
_Q8_0_NUMBER = 8  # ggml's, as those below
_NUMBERS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 30}
_INPUTS = (torch.float32, torch.bfloat16)


class Matrix(ctypes.Structure):
    """See linear.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("stride", ctypes.c_int64),
        ("type", ctypes.c_int32),
    )


class _Product(ctypes.Structure):
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
        ("narrow", ctypes.c_int32),
        ("threads", ctypes.c_int32),
    )


class TorchKernels:
    """A compiled library, which computes by torch's threads."""

    def __init__(self, path: Path) -> None:
        """Raises OSError for what is no library."""
        for openmp in _openmp_of_torch():
            ctypes.CDLL(openmp, ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(path))
        self.linear = self.library.hearth_linear
        self.linear.restype = ctypes.c_bool
        self.linear.argtypes = (ctypes.POINTER(_Product),)


def _openmp_of_torch() -> list[str]:
    """GCC's OpenMP that torch has brought along. Loaded for all, it comes before the one of the
    system; with both, threads of the one would spin while those of the other work."""
    folder = Path(torch.__file__).parent
    places = (folder / "lib", folder.parent / "torch.libs")
    return sorted(str(file) for place in places for file in place.glob("libgomp*.so*"))


@cache
def torch_kernels() -> TorchKernels | None:
    """Those compiled for this processor; None: there are none."""
    path = native.library_path(LIBRARY)
    return None if path is None else TorchKernels(path)


def supports(weight: Tensor, kind: str | None = None) -> bool:
    """Whether weight [rows, k] of floats, or uint8 [rows, bytes of a row] in GGUF's format kind,
    can be multiplied."""
    if weight.device.type != "cpu" or weight.ndim != 2 or not weight.numel():
        return False
    if weight.stride(1) != 1 or weight.stride(0) < weight.shape[1]:
        return False
    if kind is None:
        return weight.dtype in _NUMBERS
    whole = weight.shape[1] % _BLOCK_BYTES == 0
    return kind == Q8_0 and weight.dtype == torch.uint8 and whole


class Matrices:
    """Weights of the same width k, one below the other; kinds: their formats, None: floats.

    rows: of all of them; k: weights of a row. Keeps the tensors, whose memory is used.
    """

    def __init__(
        self, kernels: TorchKernels, weights: Sequence[Tensor], kinds: Sequence[str | None]
    ) -> None:
        """Raises ValueError for weights that takes says no to, and for different widths."""
        widths = {_width(weight, kind) for weight, kind in zip(weights, kinds, strict=True)}
        if len(widths) != 1:
            raise ValueError(f"{len(widths)} widths of weights, expected one: {sorted(widths)}")
        self.k = widths.pop()
        self.rows = sum(len(weight) for weight in weights)
        self.weights = tuple(weights)
        self.count = len(weights)
        self.array = (Matrix * self.count)(*map(_matrix, weights, kinds))
        self._linear = kernels.linear
        self._product = _Product(ctypes.addressof(self.array), self.count, self.k)
        self._reference = ctypes.byref(self._product)

    def multiply(self, x: Tensor, *, dtype: torch.dtype, narrow: bool = False) -> Tensor:
        """[T, rows] in dtype, of x [T, k]; both float32 or bfloat16. narrow: x and weights may be
        rounded to bfloat16 where that is faster. Raises ValueError for another x. One thread at
        a time."""
        if x.ndim != 2 or x.shape[1] != self.k or x.dtype not in _INPUTS or not _on_cpu(x):
            raise ValueError(f"inputs {list(x.shape)} of {x.dtype}, expected [T, {self.k}]")
        if x.stride(1) != 1 or x.stride(0) < 0:
            x = x.contiguous()
        out = torch.empty((len(x), self.rows), dtype=dtype)
        product = self._product
        product.n = len(x)
        product.x, product.x_stride = x.data_ptr(), x.stride(0)
        product.y, product.y_stride = out.data_ptr(), self.rows
        product.x_type, product.y_type = _NUMBERS[x.dtype], _output_number(dtype)
        product.narrow, product.threads = narrow, torch.get_num_threads()
        if len(x) and not self._linear(self._reference):
            raise MemoryError(f"no memory for a product of {len(x)} rows")
        return out


def _on_cpu(x: Tensor) -> bool:
    return bool(x.device.type == "cpu")


def _output_number(dtype: torch.dtype) -> int:
    if dtype not in _INPUTS:
        raise ValueError(f"outputs of {dtype}, expected float32 or bfloat16")
    return _NUMBERS[dtype]


def _width(weight: Tensor, kind: str | None) -> int:
    if not supports(weight, kind):
        shape = list(weight.shape)
        raise ValueError(f"weights {shape} of {kind or weight.dtype} cannot be multiplied here")
    columns: int = weight.shape[1]
    return columns if kind is None else columns // _BLOCK_BYTES * _BLOCK_WEIGHTS


def _matrix(weight: Tensor, kind: str | None) -> Matrix:
    number = _NUMBERS[weight.dtype] if kind is None else _Q8_0_NUMBER
    stride = weight.stride(0) * weight.element_size()
    return Matrix(weight.data_ptr(), weight.shape[0], stride, number)
