"""Names of a LoRA adapter's tensors: NAME.lora_a and NAME.lora_b for a matrix NAME of its model, as
llama.cpp has them, and for DoRA NAME.lora_gain, which is hearth's own (modelfile/convert/dora.py).
"""

from __future__ import annotations

from typing import Final

from registry.formats.gguf.header import GgufHeader

SIDES: Final = (".lora_a", ".lora_b")
GAIN: Final = ".lora_gain"
EMBEDDING: Final = "token_embd.weight"  # looked up, not multiplied
HEAD: Final = "output.weight"  # missing where it is the embedding


def has_gains(adapter: GgufHeader) -> bool:
    """Whether it is of DoRA, which llama.cpp does not compute by itself."""
    return any(tensor.name.endswith(GAIN) for tensor in adapter.tensors)


def changes_matrices_only(adapter: GgufHeader) -> bool:
    """Whether it changes neither the embedding nor experts, which have a matrix each."""
    return all(
        tensor.name != EMBEDDING + SIDES[0] and len(tensor.dimensions) == 2
        for tensor in adapter.tensors
        if not tensor.name.endswith(GAIN)
    )
