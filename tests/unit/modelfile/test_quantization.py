"""The names of quantization types."""

from __future__ import annotations

import pytest

from modelfile.errors import BuildError
from modelfile.quantization import ALIASES, TYPES, quantization_type, tensor_type
from registry.formats.gguf import types


@pytest.mark.parametrize(
    ("text", "name"), [("q4_k_m", "Q4_K_M"), (" Q4_K ", "Q4_K_M"), *ALIASES.items()]
)
def test_names_are_found_in_any_case_and_by_alias(text: str, name: str) -> None:
    assert quantization_type(text).name == name


def test_the_numbers_are_those_of_gguf_files() -> None:
    for kind in TYPES.values():
        assert types.FILE_TYPES[kind.file_type] in (kind.name, kind.name.removesuffix("_MOE"))
    for number, stored in types.TENSOR_TYPES.items():
        if stored.name in TYPES:
            assert tensor_type(stored.name) == number


def test_an_unknown_name_gets_the_nearest_ones() -> None:
    with pytest.raises(BuildError, match="unknown quantization type 'Q4_KM'; did you mean Q4_K_M"):
        quantization_type("Q4_KM")
    with pytest.raises(BuildError, match="unknown tensor type 'Q4_K_M'; did you mean"):
        tensor_type("Q4_K_M")
