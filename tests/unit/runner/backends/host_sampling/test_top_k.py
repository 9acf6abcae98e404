"""The shortlist is the head of a full sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.backends.host_sampling.top_k import top_k_ids
from tests.properties import examples


@examples(60)
@given(
    size=st.integers(1, 9000),
    k=st.integers(1, 200),
    decimals=st.integers(0, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_it_is_the_head_of_a_stable_sort(size: int, k: int, decimals: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    logits = np.round(random.standard_normal(size), decimals).astype(np.float32)
    logits[random.integers(0, size, size // 10)] = -np.inf
    expected = np.argsort(-logits, kind="stable")[:k]
    if (logits > -np.inf).any():
        expected = expected[logits[expected] > -np.inf]
    np.testing.assert_array_equal(top_k_ids(logits, k), expected)


@pytest.mark.parametrize("k", [5, 40, 5000])
def test_behind_a_mask_only_what_it_leaves_is_on_it(k: int) -> None:
    logits = np.full(151_936, -np.inf, np.float32)
    logits[[3, 70_000, 150_000]] = [1, 3, 2]
    assert top_k_ids(logits, k).tolist() == [70_000, 150_000, 3]


@pytest.mark.parametrize("size", [1, 63, 64, 65, 151_936])
def test_it_never_gives_more_than_there_are(size: int) -> None:
    logits = np.arange(size, dtype=np.float32)
    assert top_k_ids(logits, 10).tolist() == list(range(size - 1, max(-1, size - 11), -1))
