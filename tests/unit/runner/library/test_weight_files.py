"""Names of files that a model is made of."""

from __future__ import annotations

import pytest

from modelfile.errors import BuildError
from runner.library.weight_files import MAX_FILES, check_names


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer/vocab.json", "a b.gguf", "..x"])
def test_a_name_inside_the_folder_is_taken(name: str) -> None:
    check_names({name: None})


@pytest.mark.parametrize("name", ["", ".", "/etc/passwd", "../x", "a/../../x", "a\nb", "x" * 1025])
def test_a_name_that_leaves_the_folder_is_refused(name: str) -> None:
    with pytest.raises(BuildError, match="points outside its folder"):
        check_names({name: None})


def test_too_many_files_are_refused() -> None:
    with pytest.raises(BuildError, match=f"at most {MAX_FILES}"):
        check_names({str(number): None for number in range(MAX_FILES + 1)})
