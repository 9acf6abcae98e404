"""Names of files and types that a model is made of."""

from __future__ import annotations

import pytest

from modelfile.errors import BuildError
from runner.models.ingredients import MAX_FILES, check_names, type_named


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer/vocab.json", "a b.gguf", "..x"])
def test_a_name_inside_the_folder_is_taken(name: str) -> None:
    check_names({name: None})


@pytest.mark.parametrize("name", ["", ".", "/etc/passwd", "../x", "a/../../x", "a\nb", "x" * 1025])
def test_a_name_that_leaves_the_folder_is_refused(name: str) -> None:
    with pytest.raises(BuildError, match="does not stay in its folder"):
        check_names({name: None})


def test_too_many_files_are_refused() -> None:
    with pytest.raises(BuildError, match=f"at most {MAX_FILES}"):
        check_names({str(number): None for number in range(MAX_FILES + 1)})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("q4_k_m", "Q4_K_M"),
        ("Q4_K", "Q4_K"),
        ("f16", "F16"),
        ("iq2_xs", "IQ2_XS"),
        ("Q8_0", "Q8_0"),
    ],
)
def test_a_type_is_found_whatever_its_case(text: str, name: str) -> None:
    assert type_named(text) == name


@pytest.mark.parametrize(("text", "hint"), [("Q4_M", "Q4_"), ("best", "Q8_0 are usual")])
def test_an_unknown_type_is_told_with_near_ones(text: str, hint: str) -> None:
    with pytest.raises(BuildError, match=rf"there is no type '{text}'.*{hint}"):
        type_named(text)
