"""model.bin of CTranslate2: which variables it has, checked before native code reads it.

Format: ctranslate2/specs/model_spec.py, _serialize, binary version 6; all numbers little-endian.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import BinaryIO, Final

from modelfile.errors import ConvertError
from registry.errors import shown

_VERSION: Final = 6
_MAX_VARIABLES: Final = 1 << 16
_MAX_NAME_BYTES: Final = 1 << 10
_MAX_RANK: Final = 5
_TYPES: Final = (("F32", 4), ("I8", 1), ("I16", 2), ("I32", 4), ("F16", 2), ("BF16", 2))  # by id


@dataclass(frozen=True, slots=True)
class ModelVariables:
    """What the file holds. spec: the kind of model, such as WhisperSpec. shapes: by the names of
    the variables. quantization: the type of most weights."""

    spec: str
    shapes: Mapping[str, tuple[int, ...]]
    parameter_count: int
    quantization: str


def is_model_file(start: bytes) -> bool:
    """Whether a file that begins so, with 9 bytes or more, is Whisper's model.bin."""
    return start[2:9] == b"\x00\x00\x0c\x00Whi"


def read_variables(file: BinaryIO) -> ModelVariables:
    """The variables of the file, which is read from its beginning to its end but for the weights.
    Raises ConvertError, OSError."""
    try:
        found = _read(file)
    except (struct.error, UnicodeDecodeError) as error:
        raise ConvertError(f"model.bin is damaged: {error}") from None
    return found


def _read(file: BinaryIO) -> ModelVariables:
    size_bytes = file.seek(0, 2)
    file.seek(0)
    (version,) = _numbers(file, "<I")
    if version != _VERSION:
        raise ConvertError(
            f"model.bin has the binary version {version}, expected {_VERSION}: convert the model"
            " again with a newer CTranslate2"
        )
    spec = _name(file)
    _, count = _numbers(file, "<II")
    if count > _MAX_VARIABLES:
        raise ConvertError(f"model.bin is damaged: {count} variables")
    shapes: dict[str, tuple[int, ...]] = {}
    sizes: Counter[str] = Counter()
    for _ in range(count):
        name = _name(file)
        shape, kind, width = _shape(file)
        (stored,) = _numbers(file, "<I")
        if stored != prod(shape) * width or file.tell() + stored > size_bytes:
            raise ConvertError(
                f"model.bin is damaged: {shown(name)} has {stored} bytes for"
                f" {list(shape)} of {kind}"
            )
        file.seek(stored, 1)
        shapes[name] = shape
        if len(shape) > 1:
            sizes[kind] += prod(shape)
    if not sizes:
        raise ConvertError("model.bin has no weights")
    return ModelVariables(spec, shapes, sum(map(prod, shapes.values())), sizes.most_common(1)[0][0])


def _shape(file: BinaryIO) -> tuple[tuple[int, ...], str, int]:
    (rank,) = _numbers(file, "<B")
    if rank > _MAX_RANK:
        raise ConvertError(f"model.bin is damaged: a variable of {rank} dimensions")
    shape = _numbers(file, f"<{rank}I")
    (kind,) = _numbers(file, "<B")
    if kind >= len(_TYPES):
        raise ConvertError(f"model.bin is damaged: a variable of the type {kind}")
    return (shape, *_TYPES[kind])


def _numbers(file: BinaryIO, format: str) -> tuple[int, ...]:
    return struct.unpack(format, file.read(struct.calcsize(format)))


def _name(file: BinaryIO) -> str:
    (length,) = _numbers(file, "<H")
    text = file.read(length)
    if not 0 < length <= _MAX_NAME_BYTES or len(text) < length:
        raise ConvertError(f"model.bin is damaged: a name of {length} bytes")
    return text.rstrip(b"\x00").decode("ascii")
