"""ggml's numbers of types, in C++ and in the registry: both tables as the gguf package has them."""

from __future__ import annotations

import re

from gguf import GGMLQuantizationType as GgmlType

from kernels.native.build import SOURCES
from registry.formats.gguf.types import TENSOR_TYPES


def test_the_numbers_of_cpp_are_ggmls() -> None:
    found = re.findall(r"TYPE_(\w+) = (\d+)", (SOURCES / "types.h").read_text())
    assert len(found) > 10
    for name, number in found:
        assert GgmlType[name] == int(number)


def test_the_numbers_of_the_registry_are_ggmls() -> None:
    for number, tensor_type in TENSOR_TYPES.items():
        assert GgmlType[tensor_type.name] == number
