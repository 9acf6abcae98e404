"""From a LoRA adapter of PEFT to a GGUF adapter, checked against the model that it is for.

Format: adapter_config.json and adapter_model.safetensors; in GGUF each matrix of the model that
the adapter changes has NAME.lora_a and NAME.lora_b, and NAME.lora_gain for DoRA (dora.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import gguf
import numpy as np

from modelfile.convert.adapter_config import NAME as CONFIG
from modelfile.convert.adapter_config import read_adapter_config
from modelfile.convert.adapter_scaling import MAX_RANK, AdapterScaling, read_scaling
from modelfile.convert.architectures.gemma3 import text_part
from modelfile.convert.checkpoint import check_safe
from modelfile.convert.config import Config
from modelfile.convert.conversion import (
    TYPES,
    ConversionResult,
    described,
    target_name,
    tensor_names,
)
from modelfile.convert.decoder import with_prefix
from modelfile.convert.dora import row_gains
from modelfile.convert.layout import lay_out
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.numerics import WIDTHS
from modelfile.convert.plan import ComputedWeight, Weight
from modelfile.convert.prequantized import converted_header
from modelfile.convert.tensor_data import TensorSource
from modelfile.convert.writer import Report, write
from modelfile.errors import ConvertError
from registry.errors import shown
from registry.formats.gguf import GgufHeader
from registry.formats.gguf import read_header as read_gguf
from registry.formats.gguf.lora import EMBEDDING, GAIN, HEAD
from registry.formats.safetensors import TensorEntry, read_header

WEIGHTS: Final = "adapter_model.safetensors"
_NAME: Final = re.compile(
    r"(?:base_model\.model\.)?(.+)\.lora_"
    r"(?:([AB])(?:\.[\w-]+)?\.weight|(embedding_[AB])(?:\.[\w-]+)?"
    r"|(magnitude_vector)(?:\.[\w-]+){0,2})"
)
_MAGNITUDES: Final = "magnitude_vector"
_READING: Final = "reading the model"
_INTERLEAVED: Final = "llama"  # the architecture whose queries and keys change places
# PEFT saves the weights of an embedding or head whose adapter it saves, which are the model's.
_COPY: Final = re.compile(r"(?:base_model\.model\.)?(.+)\.base_layer\.weight")


@dataclass(frozen=True, slots=True)
class Pair:
    """The two matrices for one of the model's: a is [rank, columns], b is [rows, rank]; for the
    embedding they change its transpose. module: PEFT's name for it. magnitudes: of DoRA, [rows]."""

    target: str
    module: str
    a: TensorEntry
    b: TensorEntry
    magnitudes: TensorEntry | None

    @property
    def rank(self) -> int:
        """Their common side."""
        return self.a.shape[0]


def convert_adapter(
    files: Mapping[str, Path], target: Path, type: str, base: Path | None, report: Report
) -> ConversionResult:
    """Write the adapter to target as GGUF. base: the GGUF file of its model. type: F32, F16,
    BF16 or auto, which is F32.

    Raises ConvertError, with names and shapes where the adapter is for another model,
    InvalidSafetensors, InvalidGguf, OSError.
    """
    if base is None:
        raise ConvertError(
            "an adapter can only be converted together with its model; give the model too"
        )
    if type not in (*TYPES, "auto"):
        raise ConvertError(f"type {shown(type)}, expected {', '.join(TYPES)} or auto")
    config, model = read_adapter_config(files), read_gguf(base)
    dora = config.flag("use_dora")
    if model.keeps_checkpoint:
        if dora:
            config.refuse(
                "use_dora",
                "DoRA is computed against the weights of the model, and this one keeps a checkpoint"
                f" quantized by {model.quantization}; use a GGUF of it or the unquantized one",
            )
        model = converted_header(model)
    pairs = _pairs(_read_tensors(files), model)
    for pair in pairs:
        _check(pair, model)
        _check_magnitudes(pair, config, dora=dora)
    chosen = "F32" if type == "auto" else type
    alpha, factors = _factors(read_scaling(config), pairs)
    contents = _contents(pairs, factors, model, chosen, alpha, report)
    layout = lay_out(_metadata(model.architecture, alpha), [described(each) for each in contents])
    write(target, layout, contents, report)
    return ConversionResult(model.architecture, chosen, len(contents))


def _contents(
    pairs: Sequence[Pair],
    factors: Sequence[float],
    model: GgufHeader,
    type: str,
    alpha: float,
    report: Report,
) -> list[TensorSource | ComputedWeight]:
    """What the file has, its one alpha and the factors of B given. Reads the model for DoRA."""
    weights = {tensor.name: tensor for tensor in model.tensors}
    sizes = [weights[pair.target].size_bytes for pair in pairs if pair.magnitudes is not None]
    found: list[TensorSource | ComputedWeight] = []
    done = 0
    for pair, factor in zip(pairs, factors, strict=True):
        heads = _rotary_heads(pair.target, model)
        a, b = _sources(pair, type, heads)
        if pair.magnitudes is None:
            looked_up = pair.target == EMBEDDING  # a row of A for each token
            found += [
                ComputedWeight(a.name, a.floats().T) if looked_up else a,
                b if factor == 1 else replace(b, factor=np.float32(factor)),
            ]
            continue
        update = a.floats(), b.floats() * np.float32(alpha / pair.rank * factor)
        rows = Weight(pair.magnitudes.name, pair.magnitudes.shape, rotary_heads=heads)
        magnitudes = TensorSource(rows.name, "F32", rows, (pair.magnitudes,)).floats()
        gains = row_gains(model, weights[pair.target], update, magnitudes)
        added = (gains - 1).astype(np.float32)
        found += [
            a,
            replace(b, factor=(gains[:, None] * factor).astype(np.float32)),
            ComputedWeight(pair.target + GAIN, added),
        ]
        done += weights[pair.target].size_bytes
        report(_READING, done, sum(sizes))
    return found


def _read_tensors(files: Mapping[str, Path]) -> dict[str, TensorEntry]:
    for name, path in files.items():
        if name.startswith("adapter_model."):
            check_safe(name, path)
    if WEIGHTS not in files:
        raise ConvertError(f"{WEIGHTS} is missing beside {CONFIG}")
    return {tensor.name: tensor for tensor in read_header(files[WEIGHTS]).tensors}


def _pairs(tensors: Mapping[str, TensorEntry], model: GgufHeader) -> list[Pair]:
    if not tensors:
        raise ConvertError("the adapter has no tensors")
    names = tensor_names(model.architecture, model.block_count or 0)
    sides: dict[str, dict[str, TensorEntry]] = {}
    modules: dict[str, str] = {}
    for name, tensor in tensors.items():
        if copy := _COPY.fullmatch(name):
            _check_shape(_target(names, copy[1], model), tensor.shape, model)
            continue
        match = _NAME.fullmatch(name)
        if match is None:
            raise ConvertError(
                f"tensor {shown(name)} is neither a side of LoRA nor a magnitude of DoRA;"
                " only these are supported"
            )
        target = _target(names, match[1], model)
        modules[target] = match[1]
        found = sides.setdefault(target, {})
        side = match[2] or match[3] or match[4]
        if (target == EMBEDDING) != side.startswith("embedding_") and side != _MAGNITUDES:
            raise ConvertError(f"{shown(name)} is no side of an adapter for {target}")
        side = side.removeprefix("embedding_")
        if side in found:
            raise ConvertError(
                f"{shown(name)} and {shown(found[side].name)} are for the same matrix"
            )
        found[side] = tensor
    for target, found in sides.items():
        if not found.keys() >= {"A", "B"}:
            raise ConvertError(f"the adapter has only one of two matrices for {target}")
    return [
        Pair(target, modules[target], found["A"], found["B"], found.get(_MAGNITUDES))
        for target, found in sides.items()
    ]


def _target(names: gguf.TensorNameMap, name: str, model: GgufHeader) -> str:
    renamed = with_prefix(text_part(name) or name)
    try:
        return target_name(names, f"{renamed}.weight")
    except ConvertError:
        raise ConvertError(
            f"the adapter is for another model: {shown(name)} has no place in"
            f" {model.architecture} with {model.block_count} layers"
        ) from None


def _check(pair: Pair, model: GgufHeader) -> None:
    """Raises ConvertError when the matrices do not fit the model's."""
    for entry in (pair.a, pair.b):
        if entry.dtype not in WIDTHS or len(entry.shape) != 2 or 0 in entry.shape:
            raise ConvertError(
                f"tensor {shown(entry.name)} is {entry.dtype} {list(entry.shape)}, expected a"
                f" matrix of {', '.join(WIDTHS)}"
            )
    if pair.b.shape[1] != pair.rank or pair.rank > MAX_RANK:
        raise ConvertError(
            f"{shown(pair.a.name)} is {list(pair.a.shape)} and its other half"
            f" {list(pair.b.shape)}: the ranks differ"
        )
    wanted = pair.b.shape[0], pair.a.shape[1]
    _check_shape(pair.target, wanted[::-1] if pair.target == EMBEDDING else wanted, model)


def _check_shape(target: str, wanted: tuple[int, ...], model: GgufHeader) -> None:
    """Raises ConvertError when the model has no such matrix."""
    have = {tensor.name: tensor.dimensions for tensor in model.tensors}.get(target)
    if have is None:
        raise ConvertError(
            f"the adapter changes {HEAD} alone, and the model shares it with its embedding; this"
            " is not supported"
            if target == HEAD
            else f"the adapter is for another model: this one has no {target}"
        )
    if have != wanted[::-1]:
        raise ConvertError(
            f"the adapter is for another model: {target} is {list(reversed(have))}, the"
            f" adapter is for {list(wanted)}"
        )


def _check_magnitudes(pair: Pair, config: Config, *, dora: bool) -> None:
    """Raises ConvertError where DoRA's magnitudes are missing, too many or of another length."""
    entry, rows = pair.magnitudes, pair.b.shape[0]
    if dora and pair.target == EMBEDDING:
        config.refuse("use_dora", "true is not supported for the embedding")
    if not dora:
        if entry is not None:
            config.refuse("use_dora", f"false, but the adapter has {shown(entry.name)}")
        return
    if entry is None:
        raise ConvertError(f"the adapter has no magnitudes for {pair.target}, which DoRA needs")
    if entry.dtype not in WIDTHS or entry.shape != (rows,):
        raise ConvertError(
            f"tensor {shown(entry.name)} is {entry.dtype} {list(entry.shape)}, expected [{rows}] of"
            f" {', '.join(WIDTHS)}"
        )


def _sources(pair: Pair, type: str, heads: int | None) -> tuple[TensorSource, TensorSource]:
    a, b = Weight(pair.a.name, pair.a.shape), Weight(pair.b.name, pair.b.shape, rotary_heads=heads)
    return (
        TensorSource(f"{pair.target}.lora_a", type, a, (pair.a,)),
        TensorSource(f"{pair.target}.lora_b", type, b, (pair.b,)),
    )


def _rotary_heads(target: str, model: GgufHeader) -> int | None:
    """The heads of a matrix whose rows the conversion of the model has moved."""
    if model.architecture != _INTERLEAVED:
        return None
    heads = None
    if target.endswith("attn_q.weight"):
        heads = model.head_count
    elif target.endswith("attn_k.weight"):
        heads = model.head_count_kv
    return heads


def _factors(scaling: AdapterScaling, pairs: list[Pair]) -> tuple[float, list[float]]:
    """The one alpha of the file, which llama.cpp divides by the rank of each pair, and what each
    pair is multiplied by to have its own."""
    wanted = [scaling.alpha_of(pair.module, pair.rank) for pair in pairs]
    alpha = wanted[0]
    return alpha, [own / alpha for own in wanted]


def _metadata(architecture: str, alpha: float) -> tuple[MetadataValue, ...]:
    return (
        MetadataValue("general.architecture", "string", architecture),
        MetadataValue("general.type", "string", "adapter"),
        MetadataValue("adapter.type", "string", "lora"),
        MetadataValue("adapter.lora.alpha", "f32", alpha),
    )
