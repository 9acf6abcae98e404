"""Cuts a GGUF file into parts as llama-gguf-split does: the metadata in the first one."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

from registry.formats.gguf.header import TensorInfo
from registry.formats.gguf.merge import SplitPart, read_part
from registry.formats.gguf.types import TENSOR_NUMBERS, UINT16
from tests.gguf_files import Value, encode, string


def parts_of(path: Path, count: int, stem: str) -> dict[str, bytes]:
    """The parts by their names, with about as many tensors each."""
    whole, content = read_part(path), path.read_bytes()
    size = -(-len(whole.tensors) // count)
    parts = {}
    for number in range(count):
        keys = {"split.no": Value(UINT16, number), "split.count": Value(UINT16, count)}
        keys["split.tensors.count"] = Value(5, len(whole.tensors))
        entries = b"".join(whole.entries.values()) if number == 0 else b""
        tensors = whole.tensors[number * size : (number + 1) * size]
        head_count = len(keys) + (len(whole.entries) if number == 0 else 0)
        written = _part(whole, content, entries + _encoded(keys), head_count, tensors)
        parts[f"{stem}-{number + 1:05}-of-{count:05}.gguf"] = written
    return parts


def _encoded(keys: Mapping[str, Value]) -> bytes:
    return b"".join(string(key) + encode(value) for key, value in keys.items())


def _part(
    whole: SplitPart,
    content: bytes,
    entries: bytes,
    key_count: int,
    tensors: tuple[TensorInfo, ...],
) -> bytes:
    table, weights = b"", b""
    for tensor in tensors:
        rank = len(tensor.dimensions)
        table += string(tensor.name) + struct.pack("<I", rank)
        table += struct.pack(f"<{rank}Q", *tensor.dimensions)
        table += struct.pack("<IQ", TENSOR_NUMBERS[tensor.type], len(weights))
        start = whole.data_offset + tensor.offset
        weights += content[start : start + tensor.size_bytes]
        weights += bytes(-len(weights) % whole.alignment)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), key_count) + entries + table
    return head + bytes(-len(head) % 32) + weights
