"""The GGUF file that is to be written: its header and the place of every tensor.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, version 3. Holds no weights.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from modelfile.convert.metadata import MetadataValue
from modelfile.errors import ConvertError
from registry.formats.gguf.types import (
    ARRAY,
    BOOL,
    FLOAT32,
    INT32,
    STRING,
    TENSOR_NUMBERS,
    TENSOR_TYPES,
    UINT8,
    UINT32,
    UINT64,
)

ALIGNMENT: Final = 32
_VERSION: Final = 3
_KINDS: Final = {
    "u8": (UINT8, "<u1"),
    "i32": (INT32, "<i4"),
    "u32": (UINT32, "<u4"),
    "f32": (FLOAT32, "<f4"),
    "bool": (BOOL, "<u1"),
    "string": (STRING, None),
    "u64": (UINT64, "<u8"),
}


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """One tensor of the file. shape: slowest dimension first. offset: in the data section."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int

    @property
    def size_bytes(self) -> int:
        """Its bytes without what pads it."""
        return prod(self.shape) * TENSOR_TYPES[TENSOR_NUMBERS[self.type]].block_bytes


@dataclass(frozen=True, slots=True)
class FileLayout:
    """header: all bytes before the data section. size_bytes: of the whole file."""

    header: bytes
    places: tuple[PlacedTensor, ...]
    size_bytes: int


def lay_out(
    metadata: Sequence[MetadataValue], tensors: Sequence[tuple[str, tuple[int, ...], str]]
) -> FileLayout:
    """The file with these tensors: name, shape and type. Raises ConvertError when a key or a
    tensor occurs twice or a value does not fit its kind."""
    _check_unique([value.key for value in metadata])
    _check_unique([name for name, _, _ in tensors])
    places, offset = [], 0
    for name, shape, kind in tensors:
        place = PlacedTensor(name, shape, kind, offset)
        places.append(place)
        offset += padded(place.size_bytes)
    parts = [b"GGUF" + struct.pack("<IQQ", _VERSION, len(places), len(metadata))]
    parts += [_entry(value) for value in metadata]
    parts += [_row(place) for place in places]
    header = b"".join(parts)
    header += bytes(padded(len(header)) - len(header))
    return FileLayout(header, tuple(places), len(header) + offset)


def padded(size_bytes: int) -> int:
    """The next multiple of the alignment."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def _entry(entry: MetadataValue) -> bytes:
    kind = entry.kind.removesuffix("s")
    try:
        number, _ = _KINDS[kind]
        if kind == entry.kind:
            return _string(entry.key) + struct.pack("<I", number) + _values(kind, [entry.value])
        items: Any = entry.value
        head = struct.pack("<IIQ", ARRAY, number, len(items))
        return _string(entry.key) + head + _values(kind, items)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ConvertError(f"{entry.key}: the value is not of type {entry.kind}: {error}") from None


def _values(kind: str, values: Any) -> bytes:
    dtype = _KINDS[kind][1]
    if dtype is None:
        return b"".join(map(_string, values))
    if kind == "u8" and isinstance(values, bytes | bytearray):
        return bytes(values)
    return np.array(values, dtype=dtype).tobytes()


def _string(text: str | bytes) -> bytes:
    content = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(content)) + content


def _row(place: PlacedTensor) -> bytes:
    rank = len(place.shape)
    return (
        _string(place.name)
        + struct.pack(f"<I{rank}Q", rank, *reversed(place.shape))
        + struct.pack("<IQ", TENSOR_NUMBERS[place.type], place.offset)
    )


def _check_unique(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConvertError(f"{name} occurs twice")
        seen.add(name)
