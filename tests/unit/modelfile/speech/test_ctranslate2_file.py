from __future__ import annotations

import io
import struct

import pytest

from modelfile.errors import ConvertError
from modelfile.speech.ctranslate2_file import is_model_file, read_variables


def name(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\x00"


def variable(
    key: str, shape: tuple[int, ...], kind: int, data: bytes, stored: int | None = None
) -> bytes:
    head = name(key) + struct.pack(f"<B{len(shape)}IB", len(shape), *shape, kind)
    return head + struct.pack("<I", len(data) if stored is None else stored) + data


def model(*variables: bytes, version: int = 6, count: int | None = None) -> bytes:
    number = len(variables) if count is None else count
    head = struct.pack("<I", version) + name("WhisperSpec") + struct.pack("<II", 3, number)
    return head + b"".join(variables) + struct.pack("<I", 0)


WEIGHT = variable("encoder/conv1/weight", (2, 3), 4, bytes(12))


def test_the_variables_are_counted_and_named() -> None:
    data = model(WEIGHT, variable("bias", (2,), 0, bytes(8)))
    found = read_variables(io.BytesIO(data))
    assert (found.spec, found.parameter_count, found.quantization) == ("WhisperSpec", 8, "F16")
    assert found.shapes == {"encoder/conv1/weight": (2, 3), "bias": (2,)}
    assert is_model_file(data[:9])
    assert not is_model_file(b"\x80\x04\x95\x00\x00\x00\x00\x00\x00")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        model(WEIGHT, version=5),
        model(WEIGHT, count=2),
        model(WEIGHT, count=1 << 31),
        model(variable("w", (2, 3), 4, bytes(11))),
        model(variable("w", (2, 3), 9, bytes(12))),
        model(variable("w", (2, 3), 4, b"", stored=12)),
        model(variable("w", (1 << 31, 1 << 31), 0, bytes(4), stored=0)),
        model(variable("w", (1,) * 6, 0, bytes(4))),
        model(),
        model(WEIGHT)[:40],
    ],
)
def test_what_is_damaged_is_refused(data: bytes) -> None:
    with pytest.raises(ConvertError, match=r"model\.bin"):
        read_variables(io.BytesIO(data))
