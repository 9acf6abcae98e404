from __future__ import annotations

import pytest

from registry.hosts.selection.projectors import projector_for, projectors_of, with_projector
from registry.hosts.selection.variants import RepositoryFile, choose_variant, variants_of

GIB = 2**30


def chosen(selector: str, *paths: str) -> str | None:
    entries = [RepositoryFile(path, 10, None) for path in paths]
    variants = variants_of(entries)
    variant = choose_variant("u/r", variants, selector, GIB).variant
    found = projector_for(variant, variants, projectors_of(entries))
    return None if found is None else found.path


@pytest.mark.parametrize(
    "path",
    [
        "mmproj.gguf",
        "mmproj-F16.gguf",
        "mmproj-model-f16.gguf",
        "Model-7B-mmproj-f16.gguf",
        "Model-7B.mmproj-Q8_0.gguf",
        "mmproj/F16.gguf",
    ],
)
def test_projectors_are_known_by_their_names_and_are_no_models(path: str) -> None:
    entries = [RepositoryFile(path, 10, None)]
    assert (projectors_of(entries), variants_of(entries)) == (entries, [])


def test_f16_comes_before_bf16_q8_0_and_f32() -> None:
    names = [f"mmproj-{kind}.gguf" for kind in ("Q5_K", "F32", "Q8_0", "BF16", "F16")]
    while names:
        assert chosen("Q4_0", "m-Q4_0.gguf", *names) == names[-1]
        names.pop()


def test_the_projector_of_the_same_name_comes_before_a_better_type() -> None:
    files = ["a-Q4_0.gguf", "b-Q8_0.gguf", "mmproj-a-F32.gguf", "mmproj-b-F16.gguf"]
    assert chosen("Q4_0", *files) == "mmproj-a-F32.gguf"
    assert chosen("Q8_0", *files) == "mmproj-b-F16.gguf"


def test_the_projector_of_another_model_is_left_where_it_is() -> None:
    assert chosen("Q8_0", "a-Q4_0.gguf", "b-Q8_0.gguf", "mmproj-a-F16.gguf") is None


def test_a_name_that_no_model_of_the_repository_has_does_not_matter() -> None:
    assert chosen("Q4_0", "a-Q4_0.gguf", "mmproj-c-F16.gguf") == "mmproj-c-F16.gguf"
    assert chosen("Q4_0", "a-Q4_0.gguf", "a-x.gguf", "a-mmproj-F16.gguf") == "a-mmproj-F16.gguf"


def test_the_projector_beside_the_weights_comes_first() -> None:
    files = ["4b/m-Q4_0.gguf", "12b/m-Q8_0.gguf", "4b/mmproj-F32.gguf", "12b/mmproj-F16.gguf"]
    assert chosen("Q4_0", *files) == "4b/mmproj-F32.gguf"
    assert chosen("Q4_0", *files[:2], "12b/mmproj-F16.gguf", "mmproj-F32.gguf") == (
        "mmproj-F32.gguf"
    )


def test_shards_have_the_projector_of_their_model() -> None:
    shards = [f"Q8_0/a-Q8_0-0000{n}-of-00002.gguf" for n in (1, 2)]
    files = [*shards, "b-Q4_0.gguf", "mmproj-a-F16.gguf", "mmproj-b-F16.gguf"]
    assert chosen("Q8_0", *files) == "mmproj-a-F16.gguf"


def test_the_user_hears_of_the_file_and_its_size() -> None:
    told = with_projector(RepositoryFile("x/mmproj-F16.gguf", 3 * 2**20, None))
    assert told == "with the multimodal projector mmproj-F16.gguf (3.1 MB)"
