"""The tensor table of a GGUF file: names, shapes, types, and where the data lies."""

from __future__ import annotations

import struct
from math import prod

from registry.errors import InvalidGguf, shown
from registry.formats.gguf.header import TensorInfo, tensor_size
from registry.formats.gguf.header_source import HeaderSource
from registry.formats.gguf.types import TENSOR_TYPES
from registry.formats.gguf.values import read_string

EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"  # in names; as llama.cpp's --n-cpu-moe
MAX_NAME_BYTES = 63  # ggml keeps 64 with the terminator
_MAX_ELEMENTS = 2**62
_U32 = struct.Struct("<I")
_TAIL = struct.Struct("<IQ")
_DIMENSIONS = {count: struct.Struct(f"<{count}Q") for count in range(1, 5)}


def read_tensors(source: HeaderSource, count: int) -> tuple[TensorInfo, ...]:
    """The table of count tensors. Raises InvalidGguf."""
    tensors: dict[str, TensorInfo] = {}
    for number in range(count):
        tensor = _read_tensor(source, f"tensor {number}")
        if tensor.name in tensors:
            raise InvalidGguf(f"the tensor {shown(tensor.name)} occurs twice")
        tensors[tensor.name] = tensor
    return tuple(tensors.values())


def check_layout(
    tensors: tuple[TensorInfo, ...], alignment: int, data_offset: int, size_bytes: int
) -> None:
    """The tensors lie one behind the other as the table has them, each padded to the alignment, and
    end in the file. Raises InvalidGguf."""
    place, end = 0, 0
    for tensor in tensors:
        if tensor.offset != place:
            raise InvalidGguf(f"tensor {tensor.name}: offset {tensor.offset}, expected {place}")
        end = place + tensor.size_bytes
        place = -(-end // alignment) * alignment
    if tensors and data_offset + end > size_bytes:
        needed = data_offset + end
        raise InvalidGguf(
            f"truncated: tensor {tensors[-1].name} needs {needed} bytes, has {size_bytes}"
        )


def _read_tensor(source: HeaderSource, what: str) -> TensorInfo:
    content = read_string(source, MAX_NAME_BYTES, what)
    try:
        name = content.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidGguf(f"{what}: the name is not UTF-8: {content!r}") from None
    if not name or not name.isprintable():
        raise InvalidGguf(f"{what}: the name is {shown(name)}, expected printable text")
    (count,) = source.unpack(_U32, name)
    if count not in _DIMENSIONS:
        raise InvalidGguf(f"tensor {name}: {count} dimensions, expected 1 to 4")
    dimensions = source.unpack(_DIMENSIONS[count], name)
    kind, offset = source.unpack(_TAIL, name)
    _check_shape(name, dimensions, kind)
    size = tensor_size(kind, prod(dimensions))
    return TensorInfo(name, dimensions, TENSOR_TYPES[kind].name, offset, size)


def _check_shape(name: str, dimensions: tuple[int, ...], kind: int) -> None:
    if kind not in TENSOR_TYPES:
        raise InvalidGguf(f"tensor {name}: type {kind} is not supported")
    if not all(dimensions) or prod(dimensions) > _MAX_ELEMENTS:
        raise InvalidGguf(
            f"tensor {name}: shape {list(dimensions)}, expected sizes of 1 or more and at most"
            f" {_MAX_ELEMENTS} elements"
        )
    block = TENSOR_TYPES[kind].block_size
    if dimensions[0] % block:
        raise InvalidGguf(
            f"tensor {name}: rows of {dimensions[0]} elements do not divide into the blocks of"
            f" {block} of {TENSOR_TYPES[kind].name}"
        )
