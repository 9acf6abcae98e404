"""Merging the parts of a split GGUF into one file, as llama-gguf-split --merge does.

The first part has the metadata, each part some of the tensors. The bytes of the tensors are
copied by the kernel and never come into this process.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.atomic import open_regular, whole_file
from registry.copies import copy_range, write_all
from registry.errors import InvalidGguf
from registry.formats.gguf.header import TensorInfo
from registry.formats.gguf.header_source import opened
from registry.formats.gguf.reader import (
    MAX_TENSORS,
    alignment_of,
    read_counts,
    read_entries,
)
from registry.formats.gguf.tensors import check_layout, read_tensors
from registry.formats.gguf.types import TENSOR_NUMBERS
from registry.formats.gguf.values import RawValue

_SPLIT = "split."

MergeProgress = Callable[[int, int], None]  # bytes written, bytes in all


@dataclass(frozen=True, slots=True)
class SplitPart:
    """One file of a split model. entries: the metadata as it stands in the file, by key.
    number: its place from 0, of count."""

    path: Path
    version: int
    entries: Mapping[str, bytes]
    tensors: tuple[TensorInfo, ...]
    data_offset: int
    alignment: int
    number: int
    count: int
    tensor_count: int | None


def read_part(path: Path) -> SplitPart:
    """The checked header of one file of a split model; a whole model is part 0 of 1. Raises
    InvalidGguf, OSError."""
    with opened(path) as source:
        version, tensor_count, key_count = read_counts(source)
        found = list(read_entries(source, key_count))
        raw = {key: value for key, value, _ in found}
        alignment = alignment_of(raw)
        tensors = read_tensors(source, tensor_count)
        data_offset = _padded(source.position, alignment)
        check_layout(tensors, alignment, data_offset, source.size_bytes)
    count = _number(raw, "split.count")
    return SplitPart(
        path=path,
        version=version,
        entries={key: content for key, _, content in found},
        tensors=tensors,
        data_offset=data_offset,
        alignment=alignment,
        number=_number(raw, "split.no") or 0,
        count=1 if count is None else count,
        tensor_count=_number(raw, "split.tensors.count"),
    )


def merge(paths: Sequence[Path], target: Path, report: MergeProgress) -> int:
    """Write the model whose parts these are, in any order, to target; gives the number of
    tensors. target appears when it is whole; a failure leaves nothing.

    Raises InvalidGguf when a part is missing, occurs twice or belongs to another model, OSError.
    """
    parts = _ordered([read_part(path) for path in paths])
    head, places = _plan(parts)
    with whole_file(target) as output:
        write_all(output, head)
        _copy_all(parts, places, output, len(head), report)
    return sum(len(part.tensors) for part in parts)


def _ordered(parts: Sequence[SplitPart]) -> list[SplitPart]:
    """The parts by their number, found to be one whole model. Raises InvalidGguf."""
    ordered = sorted(parts, key=lambda part: part.number)
    count = ordered[0].count
    numbers = [part.number for part in ordered]
    if any(part.count != count for part in ordered):
        counts = " and ".join(str(n) for n in sorted({part.count for part in ordered}))
        raise InvalidGguf(f"the parts are of different models: of {counts} parts")
    for number in range(count):
        if number not in numbers:
            raise InvalidGguf(f"part {number + 1} of {count} is missing")
    if len(numbers) != count:
        raise InvalidGguf(f"{len(numbers)} files for {count} parts")
    total = sum(len(part.tensors) for part in ordered)
    for part in ordered:
        if part.tensor_count not in (None, total):
            raise InvalidGguf(
                f"part {part.number + 1} is of a model with {part.tensor_count} tensors, the parts"
                f" have {total}"
            )
    return ordered


def _plan(parts: Sequence[SplitPart]) -> tuple[bytes, list[list[int]]]:
    """The header of the merged file, padded, and where each tensor goes, from its data on."""
    first = parts[0]
    entries = [content for key, content in first.entries.items() if not key.startswith(_SPLIT)]
    table, places, place, names = bytearray(), [], 0, set()
    for part in parts:
        row = []
        for tensor in part.tensors:
            if tensor.name in names:
                raise InvalidGguf(f"the tensor {tensor.name} occurs in two parts")
            names.add(tensor.name)
            table += _tensor_row(tensor, place)
            row.append(place)
            place += _padded(tensor.size_bytes, first.alignment)
        places.append(row)
    if len(names) > MAX_TENSORS:
        raise InvalidGguf(f"{len(names)} tensors, at most {MAX_TENSORS} are allowed")
    counts = struct.pack("<IQQ", first.version, len(names), len(entries))
    head = b"".join((b"GGUF", counts, *entries, bytes(table)))
    return head + bytes(_padded(len(head), first.alignment) - len(head)), places


def _tensor_row(tensor: TensorInfo, offset: int) -> bytes:
    name, rank = tensor.name.encode(), len(tensor.dimensions)
    row = struct.pack("<Q", len(name)) + name + struct.pack("<I", rank)
    row += struct.pack(f"<{rank}Q", *tensor.dimensions)
    return row + struct.pack("<IQ", TENSOR_NUMBERS[tensor.type], offset)


def _copy_all(
    parts: Sequence[SplitPart],
    places: Sequence[Sequence[int]],
    output: int,
    start: int,
    report: MergeProgress,
) -> None:
    total = sum(tensor.size_bytes for part in parts for tensor in part.tensors)
    done = end = 0
    for part, row in zip(parts, places, strict=True):
        descriptor = open_regular(part.path)
        try:
            for tensor, place in zip(part.tensors, row, strict=True):
                source = part.data_offset + tensor.offset
                os.lseek(output, start + place, os.SEEK_SET)
                for count in copy_range(descriptor, source, tensor.size_bytes, output):
                    done += count
                    report(done, total)
                end = place + _padded(tensor.size_bytes, parts[0].alignment)
        except EOFError:
            raise InvalidGguf("truncated: a part became shorter while it was read") from None
        finally:
            os.close(descriptor)
    os.ftruncate(output, start + end)


def _number(raw: Mapping[str, RawValue], key: str) -> int | None:
    value: Any = raw[key].value if key in raw else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
