"""LoRA adapters that hearth's kernels compute, several in one batch.

llama.cpp gets one adapter, the hook, whose matrices of rank 1 stand at each tensor that any adapter
changes; its products are the places in the graph where the kernels compute those that act
(kernels/native/adapters.h). So its graph is the same whichever these are.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from llama_cpp import llama_cpp as native

from kernels.native.adapters import AdapterLibrary, AdapterUse
from kernels.native.lora import LoraMatrices
from registry.formats.gguf import GgufHeader
from registry.formats.gguf.lora import GAIN, SIDES, changes_matrices_only
from runner.backends.backend import Row
from runner.backends.host_sampling import native_log
from runner.backends.llamacpp.batch import TokenBatch
from runner.errors import ModelLoadFailed
from runner.memory_file import memory_file, path_of

_ACTIVATED = "adapter.alora.invocation_tokens"
_ALPHA = "adapter.lora.alpha"


def can_mix(header: GgufHeader) -> bool:
    """Whether all that an adapter changes are matrices that are multiplied with every token."""
    return _ACTIVATED not in header.metadata and changes_matrices_only(header)


class MixedAdapters:
    """Those of one model, of which this process has no other that has adapters."""

    def __init__(self, library: AdapterLibrary, *, narrow: bool) -> None:
        """narrow: they may be rounded to eight bits, as the model's weights are."""
        self.hook: Any = None  # llama.cpp's handle; None: nothing was loaded yet
        self._library = library
        self._narrow = narrow
        self._numbers: dict[str, int] = {}
        self._ids = itertools.count()
        self._shapes: dict[str, tuple[int, int]] = {}  # inputs, outputs of the tensors with a hook
        self._unused: list[Any] = []

    def load(self, name: str, path: Path, model: Any, library_errors: Sequence[str] = ()) -> None:
        """Read an adapter that can_mix. Raises ModelLoadFailed; nothing has changed then."""
        reader = gguf.GGUFReader(path)
        field = reader.get_field(_ALPHA)
        alpha = 0.0 if field is None else float(field.contents())
        number = next(self._ids)
        try:
            pairs = _pairs(reader)
            for tensor, (a, b, gain) in pairs.items():
                factor = np.float32(alpha / len(a) if alpha else 1.0)
                matrices = LoraMatrices(a, b * factor, gain)
                self._library.put(tensor, number, matrices, narrow=self._narrow)
            shapes = {tensor: (one.a.shape[1], len(one.b)) for tensor, one in pairs.items()}
            if not shapes.keys() <= self._shapes.keys():
                self._new_hook({**self._shapes, **shapes}, reader, model, library_errors)
        except (OverflowError, NotImplementedError, ModelLoadFailed) as error:
            self._library.remove(number)
            raise ModelLoadFailed(f"the adapter {name} was rejected: {error}") from error
        self._numbers[name] = number

    def unload(self, name: str) -> None:
        """Its memory is free."""
        self._library.remove(self._numbers.pop(name))

    def close(self) -> None:
        """Unload all: the library, which is the process's, has none of this model's any more."""
        for name in list(self._numbers):
            self.unload(name)

    def use(self, rows: Sequence[Row], batch: TokenBatch) -> None:
        """The next batch is that of rows, which fills batch where they are several."""
        first = rows[0].adapters
        if all(row.adapters == first for row in rows):
            self.act_everywhere(first)
            return
        found: list[AdapterUse] = []
        outputs, start = batch.output_numbers, 0
        for row in rows:
            end = start + len(row.tokens) + len(row.draft)
            for number, scale in self._known(row.adapters):
                found += [AdapterUse(at, outputs[at], number, scale) for at in range(start, end)]
            start = end
        count = sum(number >= 0 for number in outputs)
        self._library.use(start, count, sorted(found, key=lambda use: use.adapter))

    def act_everywhere(self, adapters: Iterable[tuple[str, float]]) -> None:
        """In the next batches these act, on all tokens."""
        uses = [AdapterUse(0, 0, number, scale) for number, scale in self._known(adapters)]
        self._library.use(0, 0, uses)

    def free_unused(self) -> None:
        """Free the hooks that no context has any more."""
        while self._unused:
            native.llama_adapter_lora_free(self._unused.pop())

    def _known(self, adapters: Iterable[tuple[str, float]]) -> Iterable[tuple[int, float]]:
        return ((self._numbers[name], scale) for name, scale in adapters if name in self._numbers)

    def _new_hook(
        self,
        shapes: dict[str, tuple[int, int]],
        reader: gguf.GGUFReader,
        model: Any,
        library_errors: Sequence[str],
    ) -> None:
        """A hook at the tensors of these shapes. Raises ModelLoadFailed."""
        architecture = reader.get_field("general.architecture")
        assert architecture is not None
        with memory_file("hook") as file, path_of(file) as path:
            _write_hook(path, str(architecture.contents()), shapes)
            hook = native.llama_adapter_lora_init(model, os.fsencode(path))
        if not hook:
            raise ModelLoadFailed(native_log.last_errors(library_errors))
        if self.hook is not None:
            self._unused.append(self.hook)
        self.hook, self._shapes = hook, shapes


def _write_hook(path: Path, architecture: str, shapes: dict[str, tuple[int, int]]) -> None:
    """Of NaN: a row that another backend would compute is at fault, and not silently the base's."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    for tensor, (inputs, outputs) in shapes.items():
        writer.add_tensor(f"{tensor}{SIDES[0]}", np.full((1, inputs), np.nan, np.float32))
        writer.add_tensor(f"{tensor}{SIDES[1]}", np.zeros((outputs, 1), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _pairs(reader: gguf.GGUFReader) -> dict[str, LoraMatrices]:
    found: dict[str, dict[str, np.ndarray]] = {}
    for tensor in reader.tensors:
        name, _, kind = tensor.name.rpartition(".")
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        found.setdefault(name, {})[f".{kind}"] = values
    return {
        name: LoraMatrices(parts[SIDES[0]], parts[SIDES[1]], parts.get(GAIN))
        for name, parts in found.items()
    }
