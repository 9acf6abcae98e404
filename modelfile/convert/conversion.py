"""From a checkpoint to a GGUF file: plan, check everything, then write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import gguf
import numpy as np

from modelfile.convert.architectures import plan_for
from modelfile.convert.checkpoint import match, read_tensors, without_output
from modelfile.convert.config import read_config
from modelfile.convert.decoder import MAX_LAYERS
from modelfile.convert.general import general_metadata
from modelfile.convert.layout import lay_out
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.plan import ComputedWeight, ConversionPlan
from modelfile.convert.pooling_type import pooling_metadata
from modelfile.convert.tensor_data import TensorSource, source_of
from modelfile.convert.writer import Report, write
from modelfile.errors import ConvertError
from registry.errors import shown
from registry.formats.safetensors import TensorEntry

TYPES: Final = ("F32", "F16", "BF16")
Vocabulary = Callable[[Mapping[str, Path], int], tuple[MetadataValue, ...]]

# llama.cpp reads these as F32 only.
_ALWAYS_F32: Final = ("_norm.weight", "ffn_gate_inp.weight", "position_embd.weight")
_TOKEN_TYPES: Final = "token_types.weight"


@dataclass(frozen=True, slots=True)
class ConversionResult:
    """What was written. type: that of the matrices; tensors: their number."""

    architecture: str
    type: str
    tensors: int


def convert(
    files: Mapping[str, Path],
    target: Path,
    type: str,
    report: Report,
    vocabulary: Vocabulary | None = None,
) -> ConversionResult:
    """Write the checkpoint to target as GGUF. files: by their names in its folder. type: F32,
    F16, BF16 or auto: BF16 for a checkpoint in BF16, else F16. vocabulary: reads the
    tokenizer, None for the real one.

    Norms, vectors, routers and position embeddings are F32 whatever the type. Raises
    ConvertError and InvalidSafetensors before anything is written, OSError.
    """
    if type not in (*TYPES, "auto"):
        raise ConvertError(f"type {shown(type)}, expected {', '.join(TYPES)} or auto")
    tensors = read_tensors(files)
    config = read_config(files)
    plan = without_output(plan_for(config), tensors)
    entries = match(plan, tensors)
    chosen = _own_type(plan, entries) if type == "auto" else type
    tokens = (vocabulary or read_vocabulary)(files, plan.vocabulary_size)
    check_vocabulary(tokens, plan.vocabulary_size)
    pooled = pooling_metadata(plan, files)
    contents = _contents(plan, entries, chosen)
    own = (*general_metadata(plan, config, files, chosen), *plan.metadata, *pooled)
    known = {value.key for value in own}  # the plan says it where the tokenizer says it too
    layout = lay_out(
        (*own, *(value for value in tokens if value.key not in known)),
        [described(content) for content in contents],
    )
    write(target, layout, contents, report)
    return ConversionResult(plan.architecture, chosen, len(contents))


def target_name(names: gguf.TensorNameMap, name: str) -> str:
    """The GGUF name of a tensor of Hugging Face. Raises ConvertError."""
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    if found is None:
        raise ConvertError(f"tensor {shown(name)} does not belong to this architecture")
    return str(found)


def tensor_names(architecture: str, block_count: int) -> gguf.TensorNameMap:
    """gguf's map from names of Hugging Face to its own. Raises ConvertError."""
    numbers = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    if architecture not in numbers or block_count > MAX_LAYERS:
        raise ConvertError(f"no tensor names for {shown(architecture)} with {block_count} layers")
    return gguf.get_tensor_name_map(numbers[architecture], block_count)


def _contents(
    plan: ConversionPlan, entries: Mapping[str, TensorEntry], type: str
) -> list[TensorSource | ComputedWeight]:
    names = tensor_names(plan.architecture, plan.block_count)
    contents: list[TensorSource | ComputedWeight] = [*plan.computed]
    for weight in plan.weights:
        name = target_name(names, weight.name)
        kind = "F32" if _needs_f32(name, weight.target_shape) else type
        contents.append(source_of(weight, entries, name, kind))
    return contents


def _needs_f32(name: str, shape: tuple[int, ...]) -> bool:
    return len(shape) < 2 or name.endswith(_ALWAYS_F32) or name == _TOKEN_TYPES


def described(content: TensorSource | ComputedWeight) -> tuple[str, tuple[int, ...], str]:
    """The name, shape and type that a tensor has in the file."""
    if isinstance(content, ComputedWeight):
        return content.name, np.shape(content.values), "F32"
    return content.name, content.weight.target_shape, content.type


def _own_type(plan: ConversionPlan, entries: Mapping[str, TensorEntry]) -> str:
    """BF16 for a checkpoint whose first matrix is BF16, else F16, as llama.cpp's converter
    chooses."""
    for weight in plan.weights:
        if len(weight.shape) >= 2:
            return "BF16" if entries[weight.source_names[0]].dtype == "BF16" else "F16"
    return "F16"


def check_vocabulary(values: tuple[MetadataValue, ...], size: int) -> None:
    """Raises ConvertError when the tokenizer has another number of tokens."""
    for value in values:
        if value.key == "tokenizer.ggml.tokens":
            count = len(value.value)  # type: ignore[arg-type]
            if count != size:
                raise ConvertError(f"the tokenizer has {count} tokens, config.json says {size}")


def read_vocabulary(files: Mapping[str, Path], size: int) -> tuple[MetadataValue, ...]:
    """The tokenizer's values. Raises ConvertError."""
    from modelfile.convert import vocabulary

    return vocabulary.read_vocabulary(files, size)
