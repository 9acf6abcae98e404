"""Whether a LoRA adapter belongs to a model: its architecture and its shapes.

The rules are those of llama.cpp's loader, which would refuse the adapter when the model is first
used; here it is refused when the model is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from modelfile.errors import BuildError
from registry.formats.gguf import GgufHeader, TensorInfo
from registry.formats.gguf.architectures import check_weight_type
from registry.formats.gguf.lora import (
    EMBEDDING,
    GAIN,
    HEAD,
    SIDES,
    changes_matrices_only,
    has_gains,
)

_PLAIN = {"F32": "<u4", "F16": "<u2", "BF16": "<u2"}
_EXPONENTS = {"F32": 0x7F800000, "F16": 0x7C00, "BF16": 0x7F80}  # all ones: infinite, or NaN


def check_adapter(adapter: GgufHeader, base: GgufHeader) -> None:
    """Refuse an adapter that cannot be applied to the model base. Raises BuildError naming the
    tensor and both shapes, InvalidGguf for a tensor of a type that nothing computes with."""
    kind = adapter.metadata.get("general.type")
    if kind != "adapter":
        raise BuildError(
            f"ADAPTER names a GGUF file of type {kind or 'model'}; name that of a LoRA adapter"
        )
    if adapter.metadata.get("adapter.type") != "lora":
        found = str(adapter.metadata.get("adapter.type"))[:40]
        raise BuildError(f"the adapter is of type {found!r}, expected 'lora'")
    if adapter.architecture != base.architecture:
        raise BuildError(
            f"the adapter was made for another model: its architecture is {adapter.architecture},"
            f" that of this model {base.architecture}"
        )
    weights = {tensor.name: tensor for tensor in base.tensors}
    pairs = _pairs(adapter)
    if not pairs:
        raise BuildError("the adapter has no tensors; its file is incomplete")
    if base.keeps_checkpoint:
        if any(GAIN in pair for pair in pairs.values()):
            raise BuildError(
                "the adapter is one of DoRA, computed against the weights of another file, and this"
                f" model keeps a checkpoint quantized by {base.quantization}; use the model that"
                " the adapter was converted with"
            )
        return  # its tensors have other names and shapes; the backend compares them when it loads
    if EMBEDDING in pairs:
        _check_own_head(base, weights)
    for name, pair in pairs.items():
        _check_pair(name, pair, weights)


def check_gains(adapter: GgufHeader, alone: str | None) -> None:
    """Refuse an adapter of DoRA where llama.cpp computes adapters by itself. alone: why it does for
    all, as far as that is known. Raises BuildError."""
    if not has_gains(adapter):
        return
    remedy = "add it to a model with PARAMETER backend torch, which computes it on any device"
    if not changes_matrices_only(adapter):
        alone, remedy = "it changes the embedding or experts too", "train it without these"
    if alone is not None:
        raise BuildError(
            "the adapter is one of DoRA, which on llama.cpp hearth's CPU kernels compute, and they"
            f" do not take part: {alone}; {remedy}"
        )


def check_numbers(adapter: GgufHeader) -> None:
    """Refuse an adapter that holds what is no number: every answer would be lost. Raises BuildError
    naming the tensor, OSError."""
    import numpy as np

    for tensor in adapter.tensors:
        if (kind := _PLAIN.get(tensor.type)) is None:
            continue  # quantized; the backend looks at its values
        start = adapter.data_offset + tensor.offset
        bits = np.memmap(adapter.path, kind, "r", start, (prod(tensor.dimensions),))
        exponent = _EXPONENTS[tensor.type]
        if ((bits & exponent) == exponent).any():
            raise BuildError(f"the adapter's tensor {tensor.name} has NaN or infinite values")


def _pairs(adapter: GgufHeader) -> Mapping[str, dict[str, TensorInfo]]:
    found: dict[str, dict[str, TensorInfo]] = {}
    for tensor in adapter.tensors:
        name, dot, kind = tensor.name.rpartition(".")
        side = dot + kind
        if side not in (*SIDES, GAIN):
            raise BuildError(
                f"the adapter's tensor {tensor.name} is neither .lora_a nor .lora_b; only plain"
                " LoRA adapters can be used"
            )
        check_weight_type(tensor)
        found.setdefault(name, {})[side] = tensor
    for name, pair in found.items():
        _check_complete(name, pair)
    return found


def _check_complete(name: str, pair: Mapping[str, TensorInfo]) -> None:
    for side in SIDES:
        if side not in pair:
            raise BuildError(f"the adapter has no tensor {name}{side}")
    if (gain := pair.get(GAIN)) is None:
        return
    a, up = (pair[side].dimensions for side in SIDES)
    fits = gain.type == "F32" and gain.dimensions == up[1:]
    if not fits or len(a) != 2 or len(up) != 2 or name == EMBEDDING:
        raise BuildError(
            f"the adapter's tensor {gain.name} is {gain.type} {list(gain.dimensions)}, expected"
            f" F32 {list(up[1:])}, a number for each output of a linear map"
        )


def _check_own_head(base: GgufHeader, weights: Mapping[str, TensorInfo]) -> None:
    """Refuse an adapter of the embedding for a model whose output it is too: llama.cpp would apply
    it there as well, which ends the process. Encoders have no output."""
    causal = base.metadata.get(f"{base.architecture}.attention.causal", True)
    if HEAD not in weights and causal:
        raise BuildError(
            f"the adapter changes {EMBEDDING}, and the model uses the same weights for its output;"
            " train it without the embedding"
        )


def _check_pair(
    name: str, pair: Mapping[str, TensorInfo], weights: Mapping[str, TensorInfo]
) -> None:
    target = weights.get(name)
    if target is None:
        raise BuildError(
            f"the adapter changes the tensor {name}, which the model does not have: it was made"
            " for another model"
        )
    a, b = (pair[side].dimensions for side in SIDES)
    wide, high = _matrix(target.dimensions)
    (a_in, a_out), (b_in, b_out) = _matrix(a), _matrix(b)
    if name == EMBEDDING:  # kept the other way round, see llama.cpp's llama-adapter.cpp
        fits = (wide, high, a_in) == (b_out, a_out, b_in)
    else:
        fits = (wide, high, a_out) == (a_in, b_out, b_in)
    if a_out > max(wide, high) and name != EMBEDDING:
        raise BuildError(
            f"the adapter has {name} in rank {a_out}; the model's tensor is"
            f" {list(target.dimensions)}, which no more than {max(wide, high)} can change"
        )
    depth = _depth(target.dimensions)
    if not fits or _depth(a) != depth or _depth(b) != depth:
        raise BuildError(
            f"the adapter was made for another model: its matrices for {name} are {list(a)} and"
            f" {list(b)}, the model's tensor is {list(target.dimensions)}"
        )


def _depth(dimensions: tuple[int, ...]) -> int:
    """How many matrices it is: one for each expert."""
    return prod(dimensions[2:])


def _matrix(dimensions: tuple[int, ...]) -> tuple[int, int]:
    """The first two dimensions, the fastest first; a vector is a matrix of one row."""
    return dimensions[0], dimensions[1] if len(dimensions) > 1 else 1
