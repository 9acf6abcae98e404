"""A matrix of numbers that a client sent: what torch.save writes, or safetensors with one tensor.

Nothing is unpickled. The pickle in torch's file is read as a list of operations, which must be the
one that a tensor has; what they name is never looked up or called.
"""

from __future__ import annotations

import io
import json
import math
import pickletools
import zipfile
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from runner.errors import InvalidRequest

_MAX_DESCRIPTION_BYTES: Final = 16 * 1024
_MAX_FILES: Final = 64  # torch.save writes 6
_DIRECTORY_ENTRY: Final = b"PK\1\2"
_TYPES: Final = {  # torch's and safetensors' names, numpy's; bfloat16 is the upper half of f4
    "torch FloatStorage": "<f4",
    "torch HalfStorage": "<f2",
    "torch DoubleStorage": "<f8",
    "torch BFloat16Storage": "<u2",
    "F32": "<f4",
    "F16": "<f2",
    "F64": "<f8",
    "BF16": "<u2",
}
_KEPT: Final = ("BINPUT", "LONG_BINPUT")  # for a later use, of which a tensor has none
_TENSOR: Final = (
    "PROTO GLOBAL MARK MARK BINUNICODE GLOBAL BINUNICODE BINUNICODE int TUPLE BINPERSID int int int"
    " TUPLE2 int int TUPLE2 NEWFALSE GLOBAL EMPTY_TUPLE REDUCE TUPLE REDUCE STOP"
)
_REBUILD: Final = "torch._utils _rebuild_tensor_v2"

Vectors = NDArray[np.float32]  # [tokens, width]


def read_vectors(data: bytes, param: str) -> Vectors:
    """The matrix in data. Raises InvalidRequest naming param."""
    try:
        vectors = _of_torch(data) if data.startswith(b"PK") else _of_safetensors(data)
    except (ValueError, LookupError, TypeError, AttributeError, EOFError, RecursionError,
            NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:  # fmt: skip
        raise InvalidRequest(
            f"{param} is not a matrix as torch.save or safetensors write it: {str(error)[:200]}",
            param=param,
        ) from None
    if not vectors.size or not np.isfinite(vectors).all():
        raise InvalidRequest(
            f"{param} must be finite numbers [tokens, width] (got the shape {vectors.shape})",
            param=param,
        )
    return vectors


def _of_safetensors(data: bytes) -> Vectors:
    size = int.from_bytes(data[:8], "little")
    if not 0 < size <= min(_MAX_DESCRIPTION_BYTES, len(data) - 8):
        raise ValueError("its header is missing")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    ((_, entry),) = header.items()
    begin, end = entry["data_offsets"]
    return _matrix(data[8 + size :][begin:end], entry["dtype"], entry["shape"])


def _of_torch(data: bytes) -> Vectors:
    if data.count(_DIRECTORY_ENTRY) > _MAX_FILES:
        raise ValueError("it has too many files")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        description = files["data.pkl"]
        if description.file_size > _MAX_DESCRIPTION_BYTES:
            raise ValueError("its description is too long")
        kind, name, offset, shape = _described(archive.read(description))
        content = files[f"data/{name}"]
        if content.compress_type != zipfile.ZIP_STORED:
            raise ValueError("it is compressed")
        skipped = offset * np.dtype(_TYPES[kind]).itemsize
        return _matrix(archive.read(content)[skipped:], kind, shape)


def _described(pickle: bytes) -> tuple[str, str, int, tuple[int, int]]:
    """The type of the numbers, the file that holds them, where they begin in it, and the shape."""
    found = [each for each in pickletools.genops(pickle) if each[0].name not in _KEPT]
    names = ("int" if type(given) is int and at else op.name
             for at, (op, given, _) in enumerate(found))  # fmt: skip
    if " ".join(names) != _TENSOR:
        raise ValueError("it holds something else; save tensor.detach().contiguous()")
    given: list[Any] = [argument for _, argument, _ in found if argument is not None]
    _, rebuild, _, kind, name, _, _, offset, rows, width, *strides, _ = given
    if rebuild != _REBUILD or strides != [width, 1]:
        raise ValueError("it is not contiguous; save tensor.detach().contiguous()")
    return kind, name, offset, (rows, width)


def _matrix(content: bytes, kind: str, shape: Any) -> Vectors:
    rows, width = shape
    dtype = np.dtype(_TYPES[kind])
    size = math.prod((rows, width, dtype.itemsize))
    if min(rows, width) < 0 or size > len(content):
        raise ValueError(f"the shape {rows} x {width} needs {size} bytes, it has {len(content)}")
    numbers = np.frombuffer(content[:size], dtype)
    with np.errstate(over="ignore"):  # what is too large is not finite
        if dtype.kind == "u":
            numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
        return numbers.astype(np.float32).reshape(rows, width)
