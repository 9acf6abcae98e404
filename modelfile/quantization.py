"""The quantization types that a model's weights can be stored in, by the names people write.

Owns names, aliases, sizes and the advice on each; their numbers are registry.formats.gguf.types'.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Final

from modelfile.errors import BuildError
from registry.formats.gguf.types import FILE_NUMBERS, TENSOR_NUMBERS


@dataclass(frozen=True, slots=True)
class QuantizationType:
    """A type of a whole file. bits_per_weight: of an 8B Llama, as llama-quantize lists it, smaller
    models have more; needs_imatrix: impossible without an importance matrix; quantized: its weights
    are no longer floats."""

    name: str
    bits_per_weight: float
    advice: str
    needs_imatrix: bool = False
    quantized: bool = True

    @property
    def file_type(self) -> int:
        """llama_ftype."""
        return FILE_NUMBERS[self.name.removesuffix("_MOE")]


_MATRIX = "needs an importance matrix"

TYPES: Final[dict[str, QuantizationType]] = {
    kind.name: kind
    for kind in (
        QuantizationType("F32", 32.0, "exact, twice the size of F16", quantized=False),
        QuantizationType("F16", 16.0, "16-bit floats, the usual source", quantized=False),
        QuantizationType("BF16", 16.0, "what most models are trained in", quantized=False),
        QuantizationType("Q8_0", 8.5, "as good as F16 at half the size"),
        QuantizationType("Q6_K", 6.56, "hardly any loss"),
        QuantizationType("Q5_K_M", 5.7, "small loss"),
        QuantizationType("Q5_K_S", 5.57, "small loss"),
        QuantizationType("Q5_1", 5.65, "old; Q5_K_M is better"),
        QuantizationType("Q5_0", 5.21, "old; Q5_K_S is better"),
        QuantizationType("Q4_K_M", 4.89, "the usual choice: a quarter of F16, little loss"),
        QuantizationType("Q4_K_S", 4.67, "a little smaller than Q4_K_M"),
        QuantizationType("Q4_1", 4.78, "old; Q4_K_M is better"),
        QuantizationType("Q4_0", 4.34, "old, fast on many CPUs"),
        QuantizationType("IQ4_NL", 4.5, "better than Q4_0; gains from an importance matrix"),
        QuantizationType("IQ4_XS", 4.25, "close to Q4_K_S and smaller"),
        QuantizationType("MXFP4_MOE", 4.25, "for mixtures of experts trained in MXFP4"),
        QuantizationType("Q3_K_L", 4.3, "clear loss"),
        QuantizationType("Q3_K_M", 4.0, "clear loss"),
        QuantizationType("Q3_K_S", 3.64, "large loss"),
        QuantizationType("IQ3_M", 3.66, "better than Q3_K_S; needs an importance matrix"),
        QuantizationType("IQ3_S", 3.44, "needs an importance matrix"),
        QuantizationType("IQ3_XS", 3.3, _MATRIX, needs_imatrix=True),
        QuantizationType("IQ3_XXS", 3.06, _MATRIX, needs_imatrix=True),
        QuantizationType("Q2_K", 3.16, "large loss; needs an importance matrix"),
        QuantizationType("Q2_K_S", 2.96, _MATRIX, needs_imatrix=True),
        QuantizationType("IQ2_M", 2.7, _MATRIX, needs_imatrix=True),
        QuantizationType("IQ2_S", 2.5, _MATRIX, needs_imatrix=True),
        QuantizationType("IQ2_XS", 2.31, _MATRIX, needs_imatrix=True),
        QuantizationType("IQ2_XXS", 2.06, _MATRIX, needs_imatrix=True),
        QuantizationType("IQ1_M", 1.75, f"{_MATRIX}; a last resort", needs_imatrix=True),
        QuantizationType("IQ1_S", 1.56, f"{_MATRIX}; a last resort", needs_imatrix=True),
        QuantizationType("TQ2_0", 2.06, "for models trained with ternary weights"),
        QuantizationType("TQ1_0", 1.69, "for models trained with ternary weights"),
    )
}

# Made by PyTorch from a text and kept as checkpoints of these methods, which the backend torch runs
CALIBRATED: Final[dict[str, QuantizationType]] = {
    "GPTQ-INT4": QuantizationType("GPTQ-INT4", 4.25, "four bits, by a text; runs on torch"),
    "AWQ-INT4": QuantizationType("AWQ-INT4", 4.25, "four bits, by a text; runs on torch"),
    "SPARSE-2:4": QuantizationType("SPARSE-2:4", 9.0, "half of the weights; runs on torch"),
}

# llama-quantize knows the first four; the others are what people write.
ALIASES: Final[dict[str, str]] = {
    "Q3_K": "Q3_K_M",
    "Q4_K": "Q4_K_M",
    "Q5_K": "Q5_K_M",
    "MXFP4": "MXFP4_MOE",
    "Q6_K_M": "Q6_K",
    "FP16": "F16",
    "FP32": "F32",
}

_NO_TARGETS: Final = frozenset(("Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64", "NVFP4", "Q1_0"))
TARGET_TYPES: Final = tuple(name for name in TENSOR_NUMBERS if name not in _NO_TARGETS)
"""What single tensors can be stored as, for overrides."""


def quantization_type(text: str) -> QuantizationType:
    """The type of that name, in any case. Raises BuildError with the nearest names."""
    name = text.strip().upper()
    kind = TYPES.get(ALIASES.get(name, name))
    if kind is None:
        raise _unknown("quantization type", text, (*TYPES, *ALIASES))
    return kind


def weights_type(text: str) -> QuantizationType:
    """The type of that name for a whole model, also one that is made by a text. Raises as
    quantization_type."""
    calibrated = CALIBRATED.get(text.strip().upper())
    if calibrated is not None:
        return calibrated
    if text.strip().upper() not in (*TYPES, *ALIASES):
        raise _unknown("quantization type", text, (*TYPES, *ALIASES, *CALIBRATED))
    return quantization_type(text)


def tensor_type(text: str) -> int:
    """ggml's number of a tensor's type, by its name in any case. Raises BuildError."""
    name = text.strip().upper()
    if name not in TARGET_TYPES:
        raise _unknown("tensor type", text, TARGET_TYPES)
    return TENSOR_NUMBERS[name]


def _unknown(what: str, text: str, names: tuple[str, ...]) -> BuildError:
    near = difflib.get_close_matches(text.strip().upper()[:40], names, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(names)}"
    return BuildError(f"unknown {what} {text[:40]!r}; {hint}")
