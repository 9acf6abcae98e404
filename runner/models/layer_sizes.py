"""What of a model's weights lies where, read from its tensors' names.

Knows the names that GGUF gives to tensors, and which of them llama.cpp leaves to the processor.
Sizes in bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from registry.formats.gguf.header import TensorInfo
from registry.formats.gguf.tensors import EXPERTS

_OF_LAYER = re.compile(r"blk\.(\d{1,4})\.", re.ASCII)
_EXPERTS = re.compile(EXPERTS)
_EMBEDDING = "token_embd.weight"


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """layers: all weights of each, experts: what of them its experts are. output: what makes logits
    of the last state. copied: what of it is the embedding too, so that a device has a copy. total:
    all of the file's."""

    layers: tuple[int, ...]
    experts: tuple[int, ...]
    output: int = 0
    copied: int = 0
    total: int = 0


def layer_sizes(tensors: Iterable[TensorInfo], layers: int) -> LayerSizes:
    """Of a model with so many layers. What belongs to none stays in the machine's memory."""
    sizes, experts, output, embedding, has_output = [0] * layers, [0] * layers, 0, 0, False
    total = 0
    for tensor in tensors:
        total += tensor.size_bytes
        found = _OF_LAYER.match(tensor.name)
        if found is not None and int(found[1]) < layers:
            sizes[int(found[1])] += tensor.size_bytes
            if _EXPERTS.search(tensor.name):
                experts[int(found[1])] += tensor.size_bytes
        elif tensor.name.startswith("output"):
            output += tensor.size_bytes
            has_output = has_output or tensor.name == "output.weight"
        elif tensor.name == _EMBEDDING:
            embedding = tensor.size_bytes
    copied = 0 if has_output else embedding
    return LayerSizes(tuple(sizes), tuple(experts), output + copied, copied, total)
