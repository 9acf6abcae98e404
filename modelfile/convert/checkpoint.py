"""The files of a Hugging Face checkpoint: finding its tensors, checking them against a plan.

Reads headers only. Pickles are refused, since loading one runs its code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from modelfile.convert.numerics import WIDTHS
from modelfile.convert.plan import ConversionPlan
from modelfile.errors import ConvertError
from registry.errors import shown, shown_names
from registry.formats.safetensors import TensorEntry, read_index
from registry.formats.safetensors.index import read_shards

INDEX: Final = "model.safetensors.index.json"
_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_ZIP_MAGIC: Final = b"PK\x03\x04"
_OUTPUT: Final = "lm_head.weight"


def read_tensors(files: Mapping[str, Path]) -> dict[str, TensorEntry]:
    """All tensors of a checkpoint by their names in it. files: by their names in the folder.

    Raises ConvertError, InvalidSafetensors, OSError.
    """
    weights = {name: path for name, path in files.items() if name.endswith(".safetensors")}
    for name, path in weights.items():
        check_safe(name, path)
    if INDEX in files:
        return read_index(files[INDEX], files)
    shards = {name: path for name, path in weights.items() if "/" not in name}
    if "model.safetensors" in shards:
        shards = {"model.safetensors": shards["model.safetensors"]}
    if not shards:
        _no_weights(files)
    return read_shards(shards)


def match(plan: ConversionPlan, tensors: Mapping[str, TensorEntry]) -> dict[str, TensorEntry]:
    """The tensors by the plan's names for them. Raises ConvertError: one is missing or left
    over, or its shape or type is not what the plan wants."""
    named = _renamed(plan, tensors)
    _check_names(set(plan.source_names()), named)
    for weight in plan.weights:
        for name in weight.source_names:
            _check_tensor(named[name], weight.shape)
    return named


def without_output(plan: ConversionPlan, tensors: Mapping[str, TensorEntry]) -> ConversionPlan:
    """The plan without the output for an embedder that was made of a causal model: its names
    lack the prefix, and it may lack the output. Else the plan as it is."""
    if _OUTPUT in tensors or "embed_tokens.weight" not in tensors:
        return plan
    return replace(plan, weights=tuple(w for w in plan.weights if w.name != _OUTPUT))


def _renamed(plan: ConversionPlan, tensors: Mapping[str, TensorEntry]) -> dict[str, TensorEntry]:
    named: dict[str, TensorEntry] = {}
    for name, tensor in tensors.items():
        new = plan.rename(name)
        if new is None or new.endswith((".rotary_emb.inv_freq", ".masked_bias")):
            continue
        if new in named:
            raise ConvertError(
                f"{shown(name)} and {shown(named[new].name)} are names of the same tensor"
            )
        named[new] = tensor
    return named


def _check_names(wanted: set[str], named: dict[str, TensorEntry]) -> None:
    missing = sorted(wanted - named.keys())
    if missing:
        raise ConvertError(f"the checkpoint has no {shown_names(missing)}")
    if _OUTPUT not in wanted:  # stands in some checkpoints whose output is the embedding
        named.pop(_OUTPUT, None)
    extra = sorted(named.keys() - wanted)
    if extra:
        names = [named[name].name for name in extra]
        raise ConvertError(
            f"the checkpoint has {shown_names(names)}, which config.json does not describe"
        )


def _check_tensor(tensor: TensorEntry, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise ConvertError(
            f"tensor {tensor.name} is {list(tensor.shape)}, but config.json requires {list(shape)}"
        )
    if tensor.dtype not in WIDTHS:
        raise ConvertError(f"tensor {tensor.name} is {tensor.dtype}, expected {', '.join(WIDTHS)}")


def _no_weights(files: Mapping[str, Path]) -> None:
    for name, path in files.items():
        check_safe(name, path)
    raise ConvertError("there is no .safetensors file with weights")


def check_safe(name: str, path: Path) -> None:
    """Raises ConvertError for a pickle, by its name or by its first bytes; OSError.

    No safetensors file begins as a zip file does: its header would be 67 MB long.
    """
    with path.open("rb") as file:
        start = file.read(9)
    pickled = start[:1] == b"\x80" and start[1:2] <= b"\x05" and start[8:] != b"{"
    if name.endswith(_PICKLES) or start.startswith(_ZIP_MAGIC) or pickled:
        raise ConvertError(
            f"{name} is a pickle, which can run code when it is loaded; use safetensors"
        )
