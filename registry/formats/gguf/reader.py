"""Reading a GGUF header: counts, keys, values, tensors, each checked before use."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from registry.errors import InvalidGguf, shown
from registry.formats.gguf.fim import fim_tokens_of
from registry.formats.gguf.header import GgufHeader
from registry.formats.gguf.header_source import HeaderSource, opened
from registry.formats.gguf.rules import check_metadata
from registry.formats.gguf.tensors import check_layout, read_tensors
from registry.formats.gguf.types import UINT32
from registry.formats.gguf.values import MAX_KEY_BYTES, RawValue, plain, read_string, read_value
from registry.formats.gguf.vocabulary import check_vocabulary

MAX_KEYS = 65_536
MAX_TENSORS = 65_536
DEFAULT_ALIGNMENT = 32
_MIN_ALIGNMENT, _MAX_ALIGNMENT = 8, 1024 * 1024
_MIN_KEY_BYTES = 8 + 1 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8
_VERSION = struct.Struct("<I")
_COUNTS = struct.Struct("<QQ")


def read_header(path: Path | str) -> GgufHeader:
    """The checked header of a GGUF file (version 2 or 3, little-endian). The weights themselves
    are not read.

    Raises InvalidGguf, naming the field, the value and what was expected; OSError.
    """
    with opened(Path(path)) as source:
        return _read(source, Path(path))


def _read(source: HeaderSource, path: Path) -> GgufHeader:
    version, tensor_count, key_count = read_counts(source)
    raw = {key: value for key, value, _ in read_entries(source, key_count)}
    _check_count(source, tensor_count, MAX_TENSORS, _MIN_TENSOR_BYTES, "tensors")
    alignment = alignment_of(raw)
    tensors = read_tensors(source, tensor_count)
    check_metadata(raw)
    check_vocabulary(raw)
    data_offset = -(-source.position // alignment) * alignment
    check_layout(tensors, alignment, data_offset, source.size_bytes)
    metadata = {key: plain(value, path) for key, value in raw.items()}
    return GgufHeader(
        path, version, metadata, tensors, source.size_bytes, data_offset, fim_tokens_of(raw)
    )


def read_counts(source: HeaderSource) -> tuple[int, int, int]:
    """The version, the number of tensors and the number of keys. Raises InvalidGguf."""
    version = _read_version(source)
    tensor_count, key_count = source.unpack(_COUNTS, "the counts of tensors and keys")
    _check_count(source, key_count, MAX_KEYS, _MIN_KEY_BYTES, "metadata keys")
    _check_count(source, tensor_count, MAX_TENSORS, _MIN_TENSOR_BYTES, "tensors")
    return version, tensor_count, key_count


def _read_version(source: HeaderSource) -> int:
    magic = source.take(4, "the magic number") if source.size_bytes >= 4 else b""
    if magic != b"GGUF":
        what = f"starts with {magic!r}" if magic else f"has {source.size_bytes} bytes"
        raise InvalidGguf(f"not a GGUF file: it {what}, expected b'GGUF'")
    (version,) = source.unpack(_VERSION, "the version")
    if version in (2 << 24, 3 << 24):
        raise InvalidGguf("the file is big-endian; convert it to little-endian")
    if version not in (2, 3):
        raise InvalidGguf(f"version {version}, expected 2 or 3")
    return int(version)


def _check_count(
    source: HeaderSource, count: int, max_count: int, min_bytes: int, what: str
) -> None:
    if count > max_count:
        raise InvalidGguf(f"{count} {what}, at most {max_count} are allowed")
    if count * min_bytes > source.left_bytes:
        needed = source.position + count * min_bytes
        raise InvalidGguf(
            f"truncated: {count} {what} needs {needed} bytes, has {source.size_bytes}"
        )


def read_entries(source: HeaderSource, count: int) -> Iterator[tuple[str, RawValue, bytes]]:
    """Each key with its value and its bytes in the file. Raises InvalidGguf."""
    keys: set[str] = set()
    for number in range(count):
        start = source.position
        key = _text(read_string(source, MAX_KEY_BYTES, f"key {number}"), f"key {number}")
        if key in keys:
            raise InvalidGguf(f"the key {shown(key)} occurs twice")
        keys.add(key)
        value = read_value(source, key)
        yield key, value, source.buffer[start : source.position]


def _text(content: bytes, what: str) -> str:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidGguf(f"{what} is not UTF-8: {content[:40]!r}") from None
    if not text or not text.isprintable():
        raise InvalidGguf(f"{what} is {shown(text)}, expected printable text")
    return text


def alignment_of(raw: Mapping[str, RawValue]) -> int:
    """Where the data of tensors may begin: at multiples of it. Raises InvalidGguf."""
    value: Any = raw.get("general.alignment")
    if value is None:
        return DEFAULT_ALIGNMENT
    number = value.value
    good = value.kind == UINT32 and _MIN_ALIGNMENT <= number <= _MAX_ALIGNMENT
    if not good or number & (number - 1):
        raise InvalidGguf(
            f"general.alignment is {shown(str(number))}, expected a uint32 power of two from"
            f" {_MIN_ALIGNMENT} to {_MAX_ALIGNMENT}"
        )
    return int(number)
