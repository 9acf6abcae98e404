"""How the weights of a model of floats can be quantized while they are loaded.

One table for the parameter quantize, the memory plan and the messages. Knows the names that GGUF
gives to tensors; the arithmetic is kernels/quant/rounding.py's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # the command reads the table only
    from registry.formats.gguf import GgufHeader
    from registry.formats.gguf.header import TensorInfo

GROUP: Final = 64  # weights of int4 that share a scale and a zero point
FLOAT_TYPES: Final = ("F32", "F16", "BF16")
OFF: Final = "none"
_KEPT: Final = ("ffn_gate_inp",)  # which experts a token goes to: small, and all depends on it


@dataclass(frozen=True, slots=True)
class LoadQuantization:
    """bits_per_weight: with scales, an upper estimate for rows of 256 weights and more. columns: a
    row must be a multiple of."""

    bits_per_weight: float
    columns: int = 1


# int8: a scale a row, and at most one column in 32 in 16 bits; int4: two numbers of 16 bits a group
KINDS: Final[Mapping[str, LoadQuantization]] = {
    "int8": LoadQuantization(8.7),
    "int4": LoadQuantization(4.5, GROUP),
    "fp8": LoadQuantization(8.2),
}


def quantized_tensors(header: GgufHeader) -> Iterable[TensorInfo]:
    """Those of a file that are quantized while loading: the linear maps of its layers."""
    return (
        tensor
        for tensor in header.tensors
        if len(tensor.dimensions) >= 2
        and tensor.name.startswith("blk.")
        and not any(part in tensor.name for part in _KEPT)
    )


def loaded_bytes(header: GgufHeader, kind: str, float_bytes: int) -> int:
    """Of the weights once they are loaded, what is not quantized in floats of so many bytes."""
    quantized = sum(tensor.elements for tensor in quantized_tensors(header))
    rest = header.parameter_count - quantized
    return int(quantized * KINDS[kind].bits_per_weight / 8) + rest * float_bytes


def obstacle(header: GgufHeader, kind: str) -> str | None:
    """Why the weights of a file cannot be quantized so while loading; None: they can."""
    types = {tensor.type for tensor in quantized_tensors(header)} - set(FLOAT_TYPES)
    if header.keeps_checkpoint or types:
        found = header.quantization if header.keeps_checkpoint else ", ".join(sorted(types))
        return (
            f"its weights are quantized already ({found}), and only floats can be"
            " quantized while loading; for another quantization of a GGUF file use hearth create -q"
        )
    columns = KINDS[kind].columns
    for tensor in quantized_tensors(header):
        if tensor.dimensions[0] % columns:
            return (
                f"{kind} has groups of {columns} weights, and a row of {tensor.name} has"
                f" {tensor.dimensions[0]}; use int8 or fp8"
            )
    return None
