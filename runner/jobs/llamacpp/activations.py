"""Measuring which weights matter: the squares of what is multiplied with each, over a text.

The method is llama-imatrix's: every matrix product of a block, the product of experts by the
experts that were chosen. Knows nothing of files.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llama_cpp import llama_cpp as native
from numpy.typing import NDArray

from registry.formats.gguf.types import TENSOR_NUMBERS
from runner.errors import InternalError
from runner.jobs.llamacpp.ggml_tensor import operation, tensor_at, values, weight_name
from runner.jobs.llamacpp.imatrix_file import ActivationSums

_F32 = TENSOR_NUMBERS["F32"]
_LEAST_ROWS = 16  # a smaller product is no layer over the text


class Collector:
    """The callback for llama.cpp, and what it has summed up. sums: by the weight's name."""

    def __init__(self) -> None:
        self.sums: dict[str, ActivationSums] = {}
        self.callback = native.ggml_backend_sched_eval_callback(self._observe)
        self._raised: list[BaseException] = []

    def check(self) -> None:
        """Raise what went wrong inside the callback; through C it cannot travel."""
        if self._raised:
            raise self._raised[0]

    def _observe(self, address: Any, ask: bool, _user_data: object) -> bool:
        try:
            tensor = tensor_at(address)
            if ask:
                return _wanted(tensor)
            self._collect(tensor)
        except BaseException as error:
            self._raised.append(error)
            return False
        return True

    def _collect(self, tensor: Any) -> None:
        weight, inputs = tensor.src[0].contents, tensor.src[1].contents
        name = weight_name(weight)
        entry = self._entry(name, weight, experts=operation(tensor) == "MUL_MAT_ID")
        squares = np.square(values(inputs, np.float32), dtype=np.float32)
        if operation(tensor) == "MUL_MAT_ID":
            _add_experts(entry, squares[0], values(tensor.src[2].contents, np.int32)[0, 0])
        else:
            _add_dense(entry, squares, weight)
        if not np.isfinite(entry.squares).all():
            raise InternalError(f"the inputs of {name} are NaN; the model is damaged")

    def _entry(self, name: str, weight: Any, experts: bool) -> ActivationSums:
        found = self.sums.get(name)
        if found is None:
            matrices, columns = int(weight.ne[2] * weight.ne[3]), int(weight.ne[0])
            counts = np.zeros(matrices if experts else 1, np.int64)
            found = self.sums[name] = ActivationSums(np.zeros((matrices, columns)), counts)
        return found


def _wanted(tensor: Any) -> bool:
    kind = operation(tensor)
    if kind == "MUL_MAT_ID":
        return bool(tensor.src[1].contents.type == _F32)
    if kind != "MUL_MAT":
        return False
    inputs = tensor.src[1].contents
    if inputs.ne[1] < _LEAST_ROWS or inputs.type != _F32:
        return False
    return weight_name(tensor.src[0].contents).startswith("blk.")


def _add_dense(entry: ActivationSums, squares: NDArray[np.float32], weight: Any) -> None:
    """squares: (outer, matrices, rows, columns); a weight of two dimensions takes them all."""
    for outer, level in enumerate(squares):
        for inner, rows in enumerate(level):
            place = (outer % weight.ne[3]) * weight.ne[2] + inner % weight.ne[2]
            entry.squares[place] += rows.sum(axis=0, dtype=np.float64)
    entry.counts[:] += int(np.prod(squares.shape[:3])) // len(entry.squares)


def _add_experts(
    entry: ActivationSums, squares: NDArray[np.float32], chosen: NDArray[np.int32]
) -> None:
    """squares: (tokens, slots or 1, columns); chosen: (tokens, slots), the experts' numbers."""
    for slot in range(chosen.shape[1]):
        rows = squares[:, slot % squares.shape[1]]
        for expert in np.unique(chosen[:, slot]):
            taken = rows[chosen[:, slot] == expert]
            entry.squares[expert] += taken.sum(axis=0, dtype=np.float64)
            entry.counts[expert] += len(taken)
