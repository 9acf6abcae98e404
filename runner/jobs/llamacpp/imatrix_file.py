"""Importance matrices in files: how much each column of a weight matters.

Reads llama-imatrix's GGUF files and the older .dat ones, checked before anything is believed, and
writes GGUF. Knows nothing of how a matrix is measured or used.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

from modelfile.errors import BuildError
from registry.atomic import whole_path
from registry.formats.gguf.header import GgufHeader, TensorInfo
from registry.formats.gguf.reader import read_header

MAX_BYTES = 4 << 30
MAX_ENTRIES = 65_536
MAX_NAME_BYTES = 256
_SUMS, _COUNTS = ".in_sum2", ".counts"
_I32 = struct.Struct("<i")

Matrix = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class ActivationSums:
    """What was measured for one weight. squares: (matrices, columns), the sums of squared
    inputs; counts: (matrices,), over how many inputs."""

    squares: NDArray[np.float64]
    counts: NDArray[np.int64]


def read_matrix(path: Path) -> Matrix:
    """The mean squared input of each column, by the weight's name. Raises BuildError, InvalidGguf,
    OSError."""
    size_bytes = path.stat().st_size
    if size_bytes > MAX_BYTES:
        raise BuildError(f"the importance matrix has {size_bytes} bytes, at most {MAX_BYTES}")
    with path.open("rb") as file:
        modern = file.read(4) == b"GGUF"
    matrix = _read_gguf(path) if modern else _read_legacy(path.read_bytes())
    if not matrix:
        raise BuildError("the importance matrix has no entries")
    for name, values in matrix.items():
        if not np.isfinite(values).all() or (values < 0).any():
            raise BuildError(f"the importance matrix has a value for {name} that is no weight")
    return matrix


def write_matrix(
    path: Path, sums: Mapping[str, ActivationSums], chunks: int, chunk_tokens: int
) -> None:
    """Write a GGUF importance matrix as llama-imatrix does; it appears when it is whole. Raises
    OSError."""
    with whole_path(path) as partial:
        writer = GGUFWriter(partial, "imatrix")
        writer.add_type("imatrix")
        writer.add_array("imatrix.datasets", ["calibration"])
        writer.add_uint32("imatrix.chunk_count", chunks)
        writer.add_uint32("imatrix.chunk_size", chunk_tokens)
        for name, entry in sorted(sums.items()):
            writer.add_tensor(name + _SUMS, entry.squares.astype(np.float32))
            writer.add_tensor(name + _COUNTS, entry.counts.astype(np.float32)[:, None])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def _read_gguf(path: Path) -> Matrix:
    header = read_header(path)
    by_name = {tensor.name: tensor for tensor in header.tensors}
    matrix: Matrix = {}
    for name, tensor in by_name.items():
        if not name.endswith(_SUMS):
            continue
        weight = name.removesuffix(_SUMS)
        counts = by_name.get(weight + _COUNTS)
        if counts is None:
            raise BuildError(f"the importance matrix has sums for {weight} and no counts")
        matrix[weight] = _means(weight, _floats(header, tensor), _floats(header, counts))
    return matrix


def _floats(header: GgufHeader, tensor: TensorInfo) -> NDArray[np.float32]:
    if tensor.type != "F32":
        raise BuildError(f"the importance matrix has {tensor.name} as {tensor.type}, expected F32")
    offset = header.data_offset + tensor.offset
    return np.fromfile(header.path, "<f4", tensor.elements, offset=offset)


def _means(
    name: str, sums: NDArray[np.float32], counts: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Sums over counts, for each matrix; 1 for one that no input went through, as llama.cpp."""
    if not counts.size or sums.size % counts.size:
        raise BuildError(
            f"the importance matrix has {sums.size} sums and {counts.size} counts for {name}"
        )
    rows, per = sums.reshape(counts.size, -1), counts[:, None]
    with np.errstate(all="ignore"):
        means = np.where(per > 0, rows / per, np.float32(1.0))
    return np.asarray(means, np.float32).ravel()


class _LegacyReader:
    """A cursor over the bytes of a .dat file; reads beyond the end are refused."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def number(self, what: str, minimum: int, maximum: int) -> int:
        (value,) = _I32.unpack(self.take(4, what))
        if not minimum <= value <= maximum:
            raise BuildError(
                f"not an importance matrix: {what} is {value}, expected {minimum} to {maximum}"
            )
        return int(value)

    def take(self, count: int, what: str) -> bytes:
        end = self._position + count
        if end > len(self._content):
            raise BuildError(
                f"the importance matrix is truncated: {what} ends at byte {end}, the file at"
                f" {len(self._content)}"
            )
        part = self._content[self._position : end]
        self._position = end
        return part


def _read_legacy(content: bytes) -> Matrix:
    """llama-imatrix's .dat: the number of entries; for each its name, how often it was measured,
    its values."""
    cursor, matrix = _LegacyReader(content), Matrix()
    for number in range(cursor.number("the number of entries", 1, MAX_ENTRIES)):
        length = cursor.number(f"the length of name {number}", 1, MAX_NAME_BYTES)
        name = cursor.take(length, f"name {number}").decode("utf-8", "replace")
        calls = cursor.number(f"the number of calls of {name!r}", -(2**31), 2**31 - 1)
        count = cursor.number(f"the number of values of {name!r}", 1, 2**31 - 1)
        values = np.frombuffer(cursor.take(4 * count, f"the values of {name!r}"), "<f4")
        matrix[name] = np.asarray(values / np.float32(max(1, calls)), np.float32)
    return matrix
