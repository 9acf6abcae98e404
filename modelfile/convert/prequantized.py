"""A quantized checkpoint kept as it is: one GGUF file of its own tensors, its config and its
vocabulary.

The file is a container: tensors have Hugging Face's names and bytes, and GGUF's integer types where
it has no type of theirs; hearth.checkpoint.* says what they are. llama.cpp reads its vocabulary,
the torch backend all of it. Knows the names that quantized weights have, not their arithmetic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Final

from modelfile.convert.architectures.gemma3 import text_part
from modelfile.convert.checkpoint import read_tensors
from modelfile.convert.config import Config, read_config
from modelfile.convert.conversion import (
    ConversionResult,
    Vocabulary,
    check_vocabulary,
    read_vocabulary,
    tensor_names,
)
from modelfile.convert.general import general_metadata
from modelfile.convert.layout import lay_out
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.plan import ConversionPlan
from modelfile.convert.quantized import check_prequantized, config_from, quantization_name
from modelfile.convert.writer import Report, write
from modelfile.errors import ConvertError
from registry.errors import shown
from registry.formats.gguf.header import CHECKPOINT, GgufHeader, TensorInfo
from registry.formats.gguf.tensors import MAX_NAME_BYTES
from registry.formats.safetensors import TensorEntry
from registry.formats.safetensors.header import DTYPE_BITS

_MAX_CONFIG_BYTES: Final = 1 << 20  # the longest text in a GGUF header
_MAX_RANK: Final = 4
_SAME: Final = ("F64", "F32", "F16", "BF16")  # types of GGUF too; of others it has the width
_TYPES: Final = {kind: kind if kind in _SAME else f"I{bits}" for kind, bits in DTYPE_BITS.items()}
# What a packed map has in place of its .weight, and a stack of them behind its name
_PACKED: Final = (".qweight", ".weight_packed", ".sparse_values", "_blocks")


def write_prequantized(
    files: Mapping[str, Path], target: Path, report: Report, vocabulary: Vocabulary | None = None
) -> ConversionResult:
    """Write the checkpoint to target. files: by their names in its folder. vocabulary: reads the
    tokenizer, None for the real one. Raises ConvertError and InvalidSafetensors before anything is
    written, OSError."""
    config = read_config(files)
    plan = check_prequantized(config)
    rename = text_part if config.model_type.startswith("gemma3") else _unchanged
    tensors = {
        name: entry
        for found, entry in read_tensors(files).items()
        if (name := rename(found)) is not None
    }
    _check_names(plan, tensors)
    for name, entry in tensors.items():
        _check(name, entry)
    tokens = (vocabulary or read_vocabulary)(files, plan.vocabulary_size)
    check_vocabulary(tokens, plan.vocabulary_size)
    own = (*_general(plan, config, files), *plan.metadata, *_described(plan, config, tensors))
    known = {value.key for value in own}
    layout = lay_out(
        (*own, *(value for value in tokens if value.key not in known)),
        [(name, entry.shape or (1,), _TYPES[entry.dtype]) for name, entry in tensors.items()],
    )
    write(target, layout, list(tensors.values()), report)
    return ConversionResult(plan.architecture, quantization_name(config), len(tensors))


def converted_header(header: GgufHeader) -> GgufHeader:
    """The header of a kept checkpoint with the tensors that it would have as floats: their names
    in GGUF and their shapes. Raises ConvertError."""
    plan = check_prequantized(config_from(str(header.metadata[CHECKPOINT.config])))
    names = tensor_names(plan.architecture, plan.block_count)
    tensors = tuple(
        TensorInfo(name, tuple(reversed(weight.target_shape)), "F32", 0, 0)
        for weight in plan.weights
        if (name := names.get_name(weight.name, (".weight", ".bias"))) is not None
    )
    return replace(header, tensors=tensors)


def _unchanged(name: str) -> str | None:
    return name


def _general(
    plan: ConversionPlan, config: Config, files: Mapping[str, Path]
) -> list[MetadataValue]:
    """general.*, but the file type: llama.cpp's numbers have none for these."""
    values = general_metadata(plan, config, files, "F16")
    return [value for value in values if value.key != "general.file_type"]


def _described(
    plan: ConversionPlan, config: Config, tensors: Mapping[str, TensorEntry]
) -> tuple[MetadataValue, ...]:
    text = json.dumps(config.values, separators=(",", ":"))
    if len(text) > _MAX_CONFIG_BYTES:
        raise ConvertError(f"{config.file} has {len(text)} bytes, at most {_MAX_CONFIG_BYTES}")
    count = sum(prod(weight.target_shape) for weight in plan.weights)
    types = [entry.dtype for entry in tensors.values()]
    return (
        MetadataValue(CHECKPOINT.config, "string", text),
        MetadataValue(CHECKPOINT.types, "strings", types),
        MetadataValue(CHECKPOINT.parameters, "u64", count),
        MetadataValue(CHECKPOINT.quantization, "string", quantization_name(config)),
    )


def _check_names(plan: ConversionPlan, tensors: Mapping[str, TensorEntry]) -> None:
    """Every tensor of the plan is there, as floats or packed. What is too much, the backend
    says."""
    rename: Callable[[str], str | None] = plan.rename
    found = {rename(name) for name in tensors}
    for name in plan.source_names():
        stem = name.removesuffix(".weight")
        if name not in found and not any(f"{stem}{end}" in found for end in _PACKED):
            raise ConvertError(f"the checkpoint has no {shown(name)}")


def _check(name: str, entry: TensorEntry) -> None:
    if entry.dtype not in _TYPES or len(entry.shape) > _MAX_RANK or not entry.elements:
        raise ConvertError(
            f"tensor {shown(name)} is {entry.dtype} {list(entry.shape)}, which cannot be kept"
        )
    if len(name.encode()) > MAX_NAME_BYTES:
        raise ConvertError(
            f"the name {shown(name)} has {len(name.encode())} bytes, at most {MAX_NAME_BYTES}"
        )
