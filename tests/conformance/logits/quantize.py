"""Small random weights quantized as published checkpoints store them, and what they stand for.

Written from the formats' own packing code (AutoGPTQ, AutoAWQ, compressed-tensors, OCP MX), apart
from kernels/quant, which it is to test. Each function takes weights float32 [outputs, inputs] and
gives the tensors beside the weights they decode to, exactly.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

GROUP: Final = 32
Quantized = tuple[dict[str, Tensor], Tensor]  # the tensors by what follows the name, the weights
_AWQ_ORDER: Final = (0, 2, 4, 6, 1, 3, 5, 7)  # AutoAWQ's order_map: nibble i holds column order[i]
_E2M1: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_DTYPES: Final = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float8_e4m3fn: "F8_E4M3",
}


def fp8_tensor(weight: Tensor) -> Quantized:
    """One scale for the tensor."""
    scale = weight.abs().max() / 448
    packed = (weight / scale).to(torch.float8_e4m3fn)
    return {"weight": packed, "weight_scale": scale}, packed.float() * scale


def fp8_rows(weight: Tensor) -> Quantized:
    """One scale a row."""
    scale = weight.abs().amax(dim=1, keepdim=True) / 448
    packed = (weight / scale).to(torch.float8_e4m3fn)
    return {"weight": packed, "weight_scale": scale}, packed.float() * scale


def fp8_blocks(weight: Tensor) -> Quantized:
    """One scale for each 128 x 128, those at the edges smaller."""
    rows, columns = weight.shape
    scales = torch.empty(-(-rows // 128), -(-columns // 128))
    packed, meant = torch.empty(rows, columns, dtype=torch.float8_e4m3fn), weight.clone()
    for row in range(len(scales)):
        for column in range(scales.shape[1]):
            part = slice(128 * row, 128 * row + 128), slice(128 * column, 128 * column + 128)
            scales[row, column] = weight[part].abs().max() / 448
            packed[part] = (weight[part] / scales[row, column]).to(torch.float8_e4m3fn)
            meant[part] = packed[part].float() * scales[row, column]
    return {"weight": packed, "weight_scale_inv": scales}, meant


def int8_rows(weight: Tensor) -> Quantized:
    """compressed-tensors' int-quantized, a scale a row."""
    scale = weight.abs().amax(dim=1, keepdim=True) / 127
    packed = (weight / scale).round().to(torch.int8)
    return {"weight": packed, "weight_scale": scale}, packed.float() * scale


def gptq(weight: Tensor) -> Quantized:
    """GPTQ, groups of neighbouring columns; zero points are stored less one."""
    return _gptq(weight, torch.arange(weight.shape[1]) // GROUP)


def gptq_reordered(weight: Tensor) -> Quantized:
    """GPTQ with desc_act: a column's group is anywhere."""
    columns = torch.arange(weight.shape[1])
    return _gptq(weight, (columns * 7 % weight.shape[1]) // GROUP)


def awq(weight: Tensor) -> Quantized:
    """AWQ's gemm: words along the outputs, in an order of their own."""
    nibbles, scales, zeros, meant = _groups_of_four_bits(weight)
    order = list(_AWQ_ORDER)

    def words(values: Tensor) -> Tensor:
        return _words(values.unflatten(1, (-1, 8))[..., order].flatten(1))

    tensors = {"qweight": words(nibbles.T), "qzeros": words(zeros.T), "scales": scales.T.half()}
    return tensors, meant


def int4_symmetric(weight: Tensor) -> Quantized:
    """compressed-tensors' pack-quantized without zero points: a nibble less 8."""
    wide = weight.unflatten(1, (-1, GROUP))
    scales = (wide.abs().amax(dim=2) / 7.5).half().float()
    whole = (wide / scales[..., None]).round().clamp(-8, 7)
    tensors = {
        "weight_packed": _words((whole + 8).flatten(1).long()),
        "weight_scale": scales,
        "weight_shape": torch.tensor(weight.shape),
    }
    return tensors, (whole * scales[..., None]).flatten(1)


def int4_asymmetric(weight: Tensor) -> Quantized:
    """The same with zero points, packed along the outputs."""
    nibbles, scales, zeros, meant = _groups_of_four_bits(weight)
    tensors = {
        "weight_packed": _words(nibbles),
        "weight_scale": scales,
        "weight_zero_point": _words(zeros.T).T,
        "weight_shape": torch.tensor(weight.shape),
    }
    return tensors, meant


def mxfp4(weight: Tensor) -> Quantized:
    """A stack of maps [experts, inputs, outputs], as gpt-oss names and packs them."""
    wide = weight.transpose(1, 2).unflatten(2, (-1, 32))
    exponents = wide.abs().amax(dim=3).log2().floor() - 2
    scaled = wide / exponents.exp2()[..., None]
    table = torch.tensor([*_E2M1, *(-value for value in _E2M1)])
    nibbles = (scaled[..., None] - table).abs().argmin(dim=-1)
    blocks = (nibbles[..., 0::2] | (nibbles[..., 1::2] << 4)).to(torch.uint8)
    meant = (table[nibbles] * exponents.exp2()[..., None]).flatten(2).transpose(1, 2)
    return {"blocks": blocks, "scales": (exponents + 127).to(torch.uint8)}, meant.contiguous()


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """A safetensors file of tensors of any type."""
    header: dict[str, Any] = {}
    parts, offset = [], 0
    for name, tensor in tensors.items():
        part = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        end = offset + len(part)
        shape, dtype = list(tensor.shape), _DTYPES[tensor.dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        parts.append(part)
        offset = end
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def _gptq(weight: Tensor, groups: Tensor) -> Quantized:
    order = groups.argsort(stable=True)
    nibbles, scales, zeros, meant = _groups_of_four_bits(weight[:, order])
    back = order.argsort()
    tensors = {
        "qweight": _words(nibbles[:, back]).T,
        "qzeros": _words(zeros.T - 1),
        "scales": scales.T.half(),
        "g_idx": groups.int(),
    }
    return tensors, meant[:, back]


def _groups_of_four_bits(weight: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(nibbles [N, C], scales [N, C / GROUP], zero points from 1 to 15, the weights)."""
    wide = weight.unflatten(1, (-1, GROUP))
    low, high = wide.amin(dim=2), wide.amax(dim=2)
    scales = ((high - low) / 15).half().float()
    zeros = (-low / scales).round().clamp(1, 15)
    nibbles = ((wide / scales[..., None]).round() + zeros[..., None]).clamp(0, 15)
    meant = (nibbles - zeros[..., None]) * scales[..., None]
    return nibbles.flatten(1).long(), scales, zeros.long(), meant.flatten(1)


def _words(nibbles: Tensor) -> Tensor:
    """int32 [R, C / 8] of nibbles [R, C], the first in the lowest bits."""
    shifts = torch.arange(0, 32, 4)
    words = (nibbles.unflatten(1, (-1, 8)) << shifts).sum(dim=2)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).int()


_COMPRESSED: Final = {"quant_method": "compressed-tensors", "quantization_status": "compressed"}


def _scheme(kind: str, bits: int, **more: Any) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": kind, **more}
    return {
        **_COMPRESSED,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


# What config.json says of each kind
CONFIGS: Final[dict[str, dict[str, Any]]] = {
    "fp8_tensor": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "fp8_blocks": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "fp8_rows": {**_scheme("float", 8, strategy="channel"), "format": "float-quantized"},
    "int8_rows": {**_scheme("int", 8, strategy="channel"), "format": "int-quantized"},
    "int4_symmetric": _scheme("int", 4, group_size=GROUP, symmetric=True),
    "int4_asymmetric": _scheme("int", 4, group_size=GROUP, symmetric=False),
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False},
    "gptq_reordered": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"},
    "mxfp4": {"quant_method": "mxfp4"},
}
WAYS: Final[dict[str, Callable[[Tensor], Quantized]]] = {
    "fp8_tensor": fp8_tensor,
    "fp8_blocks": fp8_blocks,
    "fp8_rows": fp8_rows,
    "int8_rows": int8_rows,
    "int4_symmetric": int4_symmetric,
    "int4_asymmetric": int4_asymmetric,
    "gptq": gptq,
    "gptq_reordered": gptq_reordered,
    "awq": awq,
    "mxfp4": mxfp4,
}


def quantized(kind: str, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], ...]:
    """(the tensors of a quantized checkpoint, those of the floating one that it decodes to)."""
    packed, meant = {}, {}
    for name, tensor in tensors.items():
        stem, parts = _parts(kind, name, tensor)
        if parts is None:
            packed[name] = meant[name] = tensor
        else:
            packed |= {f"{stem}{part}": value for part, value in parts[0].items()}
            meant[name] = parts[1]
    return packed, meant


def _parts(kind: str, name: str, tensor: Tensor) -> tuple[str, Quantized | None]:
    if kind == "mxfp4":
        packs = ".experts." in name and tensor.ndim == 3
        return f"{name}_", WAYS[kind](tensor) if packs else None
    packs = name.endswith("_proj.weight")
    return name.removesuffix("weight"), WAYS[kind](tensor) if packs else None
