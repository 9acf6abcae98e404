"""The tensor table: shapes, types and places that a file may claim."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.errors import InvalidGguf
from registry.formats.gguf import GgufHeader, read_header
from tests.gguf_files import Tensor, gguf_file, llama_metadata

LYING = {
    "no dimensions": ([Tensor("x", ())], "tensor x: 0 dimensions, expected 1 to 4"),
    "five dimensions": ([Tensor("x", (1,) * 5)], "tensor x: 5 dimensions"),
    "a zero": ([Tensor("x", (32, 0))], r"tensor x: shape \[32, 0\]"),
    "sizes whose product overflows": ([Tensor("x", (2**63, 2), offset=0)], "tensor x: shape"),
    "2^64 - 1 elements": ([Tensor("x", (2**64 - 1,), offset=0)], "tensor x: shape"),
    "an unknown type": ([Tensor("x", (32,), 4)], "tensor x: type 4 is not supported"),
    "a type of the far future": ([Tensor("x", (32,), 2**31)], "type 2147483648 is not supported"),
    "rows that do not fill blocks": ([Tensor("x", (33, 2), 8)], "blocks of 32 of Q8_0"),
    "an odd offset": ([Tensor("x", (32,), offset=8)], "tensor x: offset 8, expected 0"),
    "an offset beyond the file": (
        [Tensor("x", (32,), offset=2**62)],
        "offset 4611686018427387904",
    ),
    "a gap": (
        [Tensor("x", (64,), offset=0), Tensor("y", (64,), offset=320)],
        "tensor y: offset 320, expected 256",
    ),
    "another order than in the table": (
        [Tensor("late", (64,), offset=256), Tensor("early", (64,), offset=0)],
        "tensor late: offset 256, expected 0",
    ),
    "a tensor over another": (
        [Tensor("x", (64,), offset=0), Tensor("y", (64,), offset=32)],
        "tensor y: offset 32, expected 256",
    ),
    "a name twice": ([Tensor("x", (32,)), Tensor("x", (32,))], "the tensor 'x' occurs twice"),
    "a name of 64 bytes": ([Tensor("x" * 64, (32,))], "64 bytes, at most 63"),
    "an empty name": ([Tensor("", (32,))], "the name is ''"),
    "a name of control characters": ([Tensor("a\x1b", (32,))], "expected printable text"),
}


def _read(folder: Path, tensors: list[Tensor], data_size: int | None = None) -> GgufHeader:
    path = folder / "model.gguf"
    path.write_bytes(gguf_file(llama_metadata(), tensors, data_size=data_size))
    return read_header(path)


@pytest.mark.parametrize("name", LYING)
def test_a_lying_tensor_is_refused(tmp_path: Path, name: str) -> None:
    tensors, message = LYING[name]
    with pytest.raises(InvalidGguf, match=message):
        _read(tmp_path, tensors, data_size=512)


def test_a_shape_larger_than_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidGguf, match=r"truncated: tensor x needs \d+ bytes, has \d+"):
        _read(tmp_path, [Tensor("x", (1000, 1000))], data_size=4000)
