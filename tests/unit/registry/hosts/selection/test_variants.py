from __future__ import annotations

import pytest

from registry.errors import RemoteMissing
from registry.hosts.selection.variants import RepositoryFile, choose_variant, variants_of

GIB = 2**30


def entries(**sizes: float) -> list[RepositoryFile]:
    return [RepositoryFile(f"m-{label}.gguf", int(gib * GIB), None) for label, gib in sizes.items()]


FILES = [
    *entries(Q2_K=2, Q4_K_M=4, Q8_0=8, F16=16),
    RepositoryFile("mmproj-m-F16.gguf", GIB, None),
    RepositoryFile("m.imatrix.gguf", 5, None),
    RepositoryFile("README.md", 5, None),
]


@pytest.mark.parametrize(
    ("memory_gib", "label"), [(64, "Q8_0"), (14, "Q8_0"), (12, "Q4_K_M"), (5, "Q2_K"), (2, "Q2_K")]
)
def test_without_a_wish_the_largest_that_fits_is_chosen_and_said(
    memory_gib: int, label: str
) -> None:
    choice = choose_variant("u/r", variants_of(FILES), None, memory_gib * GIB)
    assert choice.variant.label == label
    assert choice.note is not None
    assert label in choice.note


@pytest.mark.parametrize("selector", ["q4_k_m", "Q4_K_M", "m-Q4_K_M.gguf"])
def test_a_wish_is_met_whatever_its_case_and_nothing_is_said(selector: str) -> None:
    choice = choose_variant("u/r", variants_of(FILES), selector, GIB)
    assert choice.variant.label == "Q4_K_M"
    assert choice.note is None


def test_a_wish_that_cannot_be_met_names_what_there_is() -> None:
    with pytest.raises(RemoteMissing, match="F16, Q2_K, Q4_K_M, Q8_0"):
        choose_variant("u/r", variants_of(FILES), "Q5_K_M", GIB)


def test_shards_are_one_variant_in_order_and_incomplete_sets_none() -> None:
    shards = [
        RepositoryFile("Q4_K_M/m-Q4_K_M-00002-of-00002.gguf", 5, None),
        RepositoryFile("Q4_K_M/m-Q4_K_M-00001-of-00002.gguf", 7, None),
        RepositoryFile("m-Q8_0-00001-of-00003.gguf", 7, None),
    ]
    (variant,) = variants_of(shards)
    assert (variant.label, variant.size_bytes) == ("Q4_K_M", 12)
    assert [entry.path for entry in variant.entries] == [shards[1].path, shards[0].path]


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("Model-7B-Instruct-Q5_K_S.gguf", "Q5_K_S"),
        ("model.IQ2_XXS.gguf", "IQ2_XXS"),
        ("model-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("model-bf16.gguf", "bf16"),
        ("gpt-mxfp4.gguf", "mxfp4"),
        ("BF16/model-BF16.gguf", "BF16"),
        ("plain.gguf", "plain"),
    ],
)
def test_quantizations_are_read_from_file_names(path: str, label: str) -> None:
    (variant,) = variants_of([RepositoryFile(path, 1, None)])
    assert variant.label == label


def test_a_repository_without_models_is_said_to_have_none() -> None:
    with pytest.raises(RemoteMissing, match="no GGUF"):
        choose_variant(
            "u/r", variants_of([RepositoryFile("model.safetensors", 1, None)]), None, GIB
        )
