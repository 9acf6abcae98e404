"""model.safetensors.index.json: which shard of a checkpoint holds which tensor.

Reads the index and the headers of the shards, and checks them against each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from registry.atomic import read_regular
from registry.errors import BlobDamaged, InvalidSafetensors, shown
from registry.formats.safetensors.header import TensorEntry, read_header
from registry.formats.safetensors.strict_json import parse_object

MAX_INDEX_BYTES = 32 << 20
MAX_SHARDS = 1024
_SHARD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.safetensors")
_NUMBERED: Final = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")


def read_index(path: Path, files: Mapping[str, Path]) -> dict[str, TensorEntry]:
    """The tensors of a sharded checkpoint by name. files: the checkpoint's files by name.

    Raises InvalidSafetensors: no index, a shard missing, a tensor missing from its shard or in
    two of them; OSError.
    """
    try:
        content = read_regular(path, MAX_INDEX_BYTES)
    except BlobDamaged as error:
        raise InvalidSafetensors(error.message) from None
    if len(content) > MAX_INDEX_BYTES:
        raise InvalidSafetensors(f"an index of more than {MAX_INDEX_BYTES} bytes")
    places = _places(content)
    shards = sorted(set(places.values()))
    missing = [name for name in shards if name not in files]
    if missing:
        raise InvalidSafetensors(f"missing shard {' '.join(missing[:4])}")
    tensors = read_shards({name: files[name] for name in shards})
    for name, shard in places.items():
        if name not in tensors:
            raise InvalidSafetensors(f"tensor {shown(name)} is not in {shard}")
        if tensors[name].path != files[shard]:
            raise InvalidSafetensors(f"tensor {shown(name)} is in another shard than {shard}")
    return tensors


def read_shards(shards: Mapping[str, Path]) -> dict[str, TensorEntry]:
    """The tensors of several files together. Raises InvalidSafetensors when one is in two, or
    the numbers in the names show that a shard is missing; OSError."""
    _check_numbers(shards)
    tensors: dict[str, TensorEntry] = {}
    for name, path in shards.items():
        for tensor in read_header(path).tensors:
            if tensor.name in tensors:
                raise InvalidSafetensors(
                    f"tensor {shown(tensor.name)} is in {name} and in another shard"
                )
            tensors[tensor.name] = tensor
    return tensors


def _places(content: bytes) -> dict[str, str]:
    places = parse_object(content, "the index").get("weight_map")
    if not isinstance(places, dict) or not places:
        raise InvalidSafetensors("the index has no weight_map")
    for shard in places.values():
        if not isinstance(shard, str) or _SHARD.fullmatch(shard) is None:
            raise InvalidSafetensors(f"{shown(str(shard))} is not the name of a shard")
    if len(set(places.values())) > MAX_SHARDS:
        raise InvalidSafetensors(f"more than {MAX_SHARDS} shards")
    return places


def _check_numbers(names: Iterable[str]) -> None:
    found = [match for name in names if (match := _NUMBERED.fullmatch(name))]
    for match in found:
        prefix, count = match[1], int(match[3])
        have = {int(m[2]) for m in found if m[1] == prefix}
        for number in range(1, min(count, MAX_SHARDS) + 1):
            if number not in have:
                name = f"{prefix}-{number:05}-of-{match[3]}.safetensors"
                raise InvalidSafetensors(f"missing shard {name}")
