"""What LoRA adapters add to a map of a CPU's tensors (lora.cpp)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from kernels.native.linear import TorchKernels
from kernels.native.lora import LoraParts, Step

Acting = npt.NDArray[Any]  # of kernels.native.lora.ACTING


class TorchLora(LoraParts):
    """The adapters of one map. One thread at a time."""

    def __init__(
        self, kernels: TorchKernels, outputs: Sequence[int], inputs: int, *, narrow: bool
    ) -> None:
        super().__init__(outputs, narrow=narrow)
        self.shape = inputs, sum(outputs)
        self._add = kernels.library.hearth_lora_add
        self._add.restype = ctypes.c_bool
        size = ctypes.c_int64
        step, address = ctypes.POINTER(Step), ctypes.c_void_p
        self._add.argtypes = (
            *(address, size, step),
            *(address, size, size, address, size, ctypes.c_int),
        )

    def add(self, out: Tensor, x: Tensor, acting: Acting) -> Tensor:
        """out [T, outputs], in place if it is float32, with what adapters add for x [T, inputs].
        Raises ValueError for other shapes."""
        if x.ndim != 2 or (x.shape[1], *out.shape) != (self.shape[0], len(x), self.shape[1]):
            raise ValueError(f"{list(x.shape)} and {list(out.shape)}, expected {self.shape}")
        given, to = (_rows(each.to(torch.float32)) for each in (x, out))
        step = Step(acting.ctypes.data, len(acting))
        added = self._add(
            *(ctypes.addressof(self.parts), self.count, ctypes.byref(step)),
            *(given.data_ptr(), given.stride(0), len(given)),
            *(to.data_ptr(), to.stride(0), torch.get_num_threads()),
        )
        if not added:
            raise MemoryError(f"not enough memory for the adapters of {len(x)} tokens")
        return to.to(out.dtype)


def _rows(x: Tensor) -> Tensor:
    return x if x.stride(1) == 1 else x.contiguous()
