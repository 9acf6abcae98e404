"""How quantized checkpoints store a linear map: the quantization_config of config.json.

Sources: AutoGPTQ, AutoAWQ, compressed-tensors (formats pack-, int- and float-quantized) and the
fine-grained FP8 of DeepSeek and Qwen. Knows names and shapes; kernels/quant what the bytes mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn, Protocol

import torch

from kernels.quant import int4
from kernels.quant.fp8 import Fp8Weight
from kernels.quant.int8 import Int8Weight
from kernels.quant.packed import PackedWeight
from kernels.quant.sparse24 import Sparse24Weight
from kernels.sparse.naive import columns_of
from registry.errors import shown
from runner.errors import ModelLoadFailed

Tensor = Any
_WORDS = torch.int32
_PER_WORD = 8  # four-bit numbers in a word


class TensorReader(Protocol):
    """What of weights.WeightLoader is used here."""

    def has(self, name: str) -> bool:
        """The checkpoint has this tensor."""

    def stored(self, name: str, *shape: int, dtype: Any = None) -> Tensor:
        """The tensor as it is stored. Raises ModelLoadFailed, also for another type than dtype."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Its shape."""


Reader = Callable[[Mapping[str, Any], TensorReader, str, int, int], PackedWeight]


def check_quantization(config: Mapping[str, Any]) -> None:
    """Raises ModelLoadFailed for a quantization that is not known, naming those that are."""
    method = str(config.get("quant_method"))
    if method not in READERS:
        raise ModelLoadFailed(
            f"config.json: quantization_config: quant_method {shown(method)} is not supported;"
            f" supported are {', '.join(READERS)}"
        )


def read_packed(
    config: Mapping[str, Any], weights: TensorReader, name: str, inputs: int, outputs: int
) -> PackedWeight | None:
    """The packed weights of the map called name; None where this one is not quantized. Raises
    ModelLoadFailed."""
    scaled = any(weights.has(f"{name}.{part}") for part in ("weight_scale", "weight_scale_inv"))
    if weights.has(f"{name}.weight") and not scaled:
        return None
    return READERS[str(config["quant_method"])](config, weights, name, inputs, outputs)


def _gptq(
    config: Mapping[str, Any], weights: TensorReader, name: str, inputs: int, outputs: int
) -> PackedWeight:
    _require(config, "bits", 4)
    groups = _groups(config, inputs)
    return int4.from_gptq(
        weights.stored(f"{name}.qweight", inputs // _PER_WORD, outputs, dtype=_WORDS),
        weights.stored(f"{name}.qzeros", groups, outputs // _PER_WORD, dtype=_WORDS),
        weights.stored(f"{name}.scales", groups, outputs),
        _order(weights, f"{name}.g_idx", inputs, groups),
        0 if config.get("checkpoint_format") == "gptq_v2" else 1,
    )


def _awq(
    config: Mapping[str, Any], weights: TensorReader, name: str, inputs: int, outputs: int
) -> PackedWeight:
    _require(config, "bits", 4)
    _require(config, "version", "gemm")
    groups, words = _groups(config, inputs), outputs // _PER_WORD
    return int4.from_awq(
        weights.stored(f"{name}.qweight", inputs, words, dtype=_WORDS),
        weights.stored(f"{name}.qzeros", groups, words, dtype=_WORDS),
        weights.stored(f"{name}.scales", groups, outputs),
    )


def _fp8(
    config: Mapping[str, Any], weights: TensorReader, name: str, inputs: int, outputs: int
) -> PackedWeight:
    block = config.get("weight_block_size")
    if block is not None:
        _require(config, "weight_block_size", [128, 128])
    weight = weights.stored(f"{name}.weight", outputs, inputs, dtype=torch.float8_e4m3fn)
    inverse = f"{name}.weight_scale_inv"
    scale = inverse if weights.has(inverse) else f"{name}.weight_scale"
    if block is not None:
        return Fp8Weight(weight, weights.stored(scale, -(-outputs // 128), -(-inputs // 128)))
    return Fp8Weight(weight, _scale(weights, scale, outputs))


def _compressed(
    config: Mapping[str, Any], weights: TensorReader, name: str, inputs: int, outputs: int
) -> PackedWeight:
    scheme = _scheme(config)
    bits, kind = scheme.get("num_bits"), scheme.get("type")
    if kind == "float" and bits == 8:
        return _fp8({}, weights, name, inputs, outputs)
    if kind == "int" and bits == 8 and weights.has(f"{name}.weight"):
        weight = weights.stored(f"{name}.weight", outputs, inputs, dtype=torch.int8)
        return Int8Weight(weight, _scale(weights, f"{name}.weight_scale", outputs))
    if kind != "int" or bits != 4:
        _refuse(f"weights of type {kind} with {bits} bits", "int with 4 or 8 and float with 8 bits")
    return _compressed_int4(scheme, weights, name, inputs, outputs)


def _compressed_int4(
    scheme: Mapping[str, Any], weights: TensorReader, name: str, inputs: int, outputs: int
) -> PackedWeight:
    groups = _groups(scheme, inputs)
    zeros = f"{name}.weight_zero_point"
    words = outputs // _PER_WORD
    if weights.has(f"{name}.weight_shape"):
        weights.stored(f"{name}.weight_shape", 2)
    return int4.from_compressed(
        weights.stored(f"{name}.weight_packed", outputs, inputs // _PER_WORD, dtype=_WORDS),
        weights.stored(f"{name}.weight_scale", outputs, groups),
        weights.stored(zeros, words, groups, dtype=_WORDS) if weights.has(zeros) else None,
        _order(weights, f"{name}.weight_g_idx", inputs, groups),
    )


def _mxfp4(
    _config: Mapping[str, Any], _weights: TensorReader, name: str, _inputs: int, _outputs: int
) -> PackedWeight:
    """Only stacks of experts are packed so, which models/gpt_oss.py reads."""
    raise ModelLoadFailed(f"the checkpoint has no tensor {shown(f'{name}.weight')}")


def _sparse(
    _config: Mapping[str, Any], weights: TensorReader, name: str, inputs: int, outputs: int
) -> PackedWeight:
    """hearth's own: modelfile/convert/prequantized.py keeps what runner/jobs makes."""
    if inputs % 8:
        _refuse(f"{shown(name)} with rows of {inputs} weights", "multiples of 8")
    values = weights.stored(f"{name}.sparse_values", outputs, inputs // 2, dtype=torch.float16)
    indices = weights.stored(f"{name}.sparse_indices", outputs, inputs // 8, dtype=torch.uint8)
    places = columns_of(indices).unflatten(1, (-1, 2))
    if not bool((places[..., 0] < places[..., 1]).all()):
        _refuse(f"{shown(f'{name}.sparse_indices')}", "two places of each four, in their order")
    return Sparse24Weight(values, indices)


def _scheme(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The weights' part of the only group of config_groups."""
    groups = config.get("config_groups")
    schemes = [
        group.get("weights")
        for group in (groups.values() if isinstance(groups, dict) else ())
        if isinstance(group, dict)
    ]
    if len(schemes) != 1 or not isinstance(schemes[0], dict):
        _refuse("config_groups", "one group with weights")
    return dict(schemes[0])


def _scale(weights: TensorReader, name: str, outputs: int) -> Tensor:
    """A scale of the tensor, of its rows, or of groups of a row."""
    shape = weights.shape(name)
    if len(shape) > 2 or (shape and shape[0] not in (1, outputs)):
        _refuse(f"{shown(name)} of shape {list(shape)}", f"one number, or one a row of {outputs}")
    return weights.stored(name, *shape)


def _order(weights: TensorReader, name: str, inputs: int, groups: int) -> Tensor | None:
    """Each column's group, of which all have as many; None where the tensor is not there."""
    if not weights.has(name):
        return None
    found = weights.stored(name, inputs)
    columns = found.long().clamp(-1, groups).sort().values
    if not bool(
        (columns == torch.arange(inputs, device=columns.device) // (inputs // groups)).all()
    ):
        _refuse(f"{shown(name)}", f"{groups} groups of {inputs // groups} columns each")
    return found


def _groups(config: Mapping[str, Any], inputs: int) -> int:
    """The number of groups of inputs. Raises ModelLoadFailed where they do not divide them."""
    size = config.get("group_size")
    if size in (None, -1):
        return 1
    if type(size) is not int or size < 1 or inputs % size:
        _refuse(f"group_size {shown(str(size))}", f"a divisor of {inputs} inputs")
    return inputs // size


def _require(config: Mapping[str, Any], key: str, value: object) -> None:
    found = config.get(key, value)
    if str(found).lower() != str(value):
        _refuse(f"{key} {shown(str(found))}", str(value))


def _refuse(what: str, wanted: str) -> NoReturn:
    raise ModelLoadFailed(
        f"config.json: quantization_config: {what} is not supported, only {wanted}"
    )


READERS: Final[Mapping[str, Reader]] = MappingProxyType(
    {
        "fp8": _fp8,
        "gptq": _gptq,
        "awq": _awq,
        "compressed-tensors": _compressed,
        "mxfp4": _mxfp4,
        "sparse-2:4": _sparse,
    }
)
