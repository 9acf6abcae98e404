"""The header of one safetensors file: 8 bytes of length, JSON, then the bytes of the tensors.

Reads no weights. What stands here has been checked: types, shapes and sizes fit each other, and
the tensors fill the rest of the file exactly, in some order, without overlap or hole.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from registry.atomic import open_regular
from registry.errors import BlobDamaged, InvalidSafetensors, shown
from registry.formats.safetensors.strict_json import parse_object

MAX_HEADER_BYTES = 32 << 20  # the largest shards of published models have headers below 1 MiB
MAX_TENSORS = 1 << 17
MAX_RANK = 8
MAX_NAME_BYTES = 512
MAX_METADATA_KEYS = 1 << 16
_LENGTH_BYTES = 8
_LARGEST = 1 << 63

DTYPE_BITS: Final = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64"), 64),
}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor. shape: slowest dimension first. start: the byte in the file at path."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    start: int
    size_bytes: int

    @property
    def elements(self) -> int:
        """The number of weights."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    """A checked header. tensors: in the order of their bytes; metadata: free text of its maker."""

    path: Path
    metadata: Mapping[str, str]
    tensors: tuple[TensorEntry, ...]


def read_header(path: Path) -> SafetensorsHeader:
    """The checked header of a file. Raises InvalidSafetensors, OSError."""
    try:
        descriptor = open_regular(path)
    except BlobDamaged as error:
        raise InvalidSafetensors(error.message) from None
    with open(descriptor, "rb") as file:
        size_bytes = os.fstat(descriptor).st_size
        length = _header_length(file.read(_LENGTH_BYTES), size_bytes)
        content = file.read(length)
    if len(content) != length:
        raise InvalidSafetensors(f"truncated: {len(content)} bytes of a header of {length}")
    entries = parse_object(content, "the header")
    metadata = _metadata(entries.pop("__metadata__", {}))
    if len(entries) > MAX_TENSORS:
        raise InvalidSafetensors(f"{len(entries)} tensors, at most {MAX_TENSORS} are allowed")
    data_start = _LENGTH_BYTES + length
    tensors = sorted(
        (_tensor(path, name, entry, data_start) for name, entry in entries.items()),
        key=lambda tensor: (tensor.start, tensor.size_bytes),
    )
    _check_layout(tensors, data_start, size_bytes)
    return SafetensorsHeader(path, metadata, tuple(tensors))


def _header_length(prefix: bytes, size_bytes: int) -> int:
    if len(prefix) < _LENGTH_BYTES:
        raise InvalidSafetensors(f"truncated: {size_bytes} bytes, shorter than its length field")
    length: int = struct.unpack("<Q", prefix)[0]
    if length > MAX_HEADER_BYTES:
        raise InvalidSafetensors(
            f"a header of {length} bytes, at most {MAX_HEADER_BYTES} are allowed"
        )
    if length > size_bytes - _LENGTH_BYTES:
        raise InvalidSafetensors(f"truncated: a header of {length} bytes in {size_bytes}")
    return length


def _metadata(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise InvalidSafetensors("__metadata__ is not an object of strings")
    if len(value) > MAX_METADATA_KEYS:
        raise InvalidSafetensors(f"{len(value)} keys of metadata")
    return MappingProxyType(value)


def _tensor(path: Path, name: str, entry: Any, data_start: int) -> TensorEntry:
    if not 0 < len(name.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES:
        raise InvalidSafetensors(f"tensor name {shown(name)}: expected 1 to {MAX_NAME_BYTES} bytes")
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        _refuse(name, "expected exactly dtype, shape and data_offsets")
    dtype = entry["dtype"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        _refuse(name, f"unknown dtype {shown(str(dtype))}")
    shape = _integers(name, "shape", entry["shape"])
    if len(shape) > MAX_RANK:
        _refuse(name, f"{len(shape)} dimensions, at most {MAX_RANK} are allowed")
    offsets = _integers(name, "data_offsets", entry["data_offsets"])
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        _refuse(name, f"data_offsets {list(offsets)[:4]}, expected begin and end")
    size_bytes = prod(shape) * DTYPE_BITS[dtype] // 8
    if offsets[1] - offsets[0] != size_bytes:
        _refuse(
            name,
            f"{dtype} {list(shape)} takes {size_bytes} bytes, data_offsets give"
            f" {offsets[1] - offsets[0]}",
        )
    return TensorEntry(name, dtype, shape, path, data_start + offsets[0], size_bytes)


def _integers(name: str, field: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > 64:
        _refuse(name, f"{field} is not a short list")
    for item in value:
        if type(item) is not int or not 0 <= item < _LARGEST:
            _refuse(name, f"{field} holds {shown(str(item))}, expected whole numbers from 0 on")
    return tuple(value)


def _check_layout(tensors: Iterable[TensorEntry], data_start: int, size_bytes: int) -> None:
    position, before = data_start, None
    for tensor in tensors:
        if tensor.start < position:
            _refuse(tensor.name, f"overlaps {shown(before or '')}")
        if tensor.start > position:
            _refuse(tensor.name, f"a hole of {tensor.start - position} bytes before it")
        position, before = tensor.start + tensor.size_bytes, tensor.name
    if position > size_bytes:
        raise InvalidSafetensors(
            f"truncated: the tensors need {position} bytes, the file has {size_bytes}"
        )
    if position < size_bytes:
        raise InvalidSafetensors(f"{size_bytes - position} bytes after the last tensor")


def _refuse(name: str, message: str) -> Any:
    raise InvalidSafetensors(f"tensor {shown(name)}: {message}")
