"""Half of the weights left out: which ones, and what that costs."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from runner.jobs.torch.sparsity import sparse_tensors, sparsify
from tests.properties import examples
from tests.unit.runner.jobs.torch.test_int4 import lost, map_and_inputs, statistics


@examples(15)
@given(st.integers(0, 999))
def test_the_largest_stay_and_none_is_changed(seed: int) -> None:
    weight, _ = map_and_inputs(8, 64, seed)
    found = sparsify(weight, None).dense
    kept = found != 0
    assert bool((kept.unflatten(1, (-1, 4)).sum(-1) == 2).all())
    assert torch.equal(found, weight * kept)
    smallest = torch.where(kept, weight.abs(), torch.inf).unflatten(1, (-1, 4)).amin(-1)
    assert bool((smallest >= (weight - found).abs().unflatten(1, (-1, 4)).amax(-1)).all())


@examples(15)
@given(st.integers(0, 999))
def test_wanda_loses_less_of_the_outputs_than_the_largest_weights(seed: int) -> None:
    weight, x = map_and_inputs(24, 128, seed)
    by_inputs = lost(weight, sparsify(weight, statistics(x)).dense, x)
    assert by_inputs < 0.9 * lost(weight, sparsify(weight, None).dense, x)


def test_weights_that_are_all_zero_still_keep_two_of_four() -> None:
    tensors = sparse_tensors(sparsify(torch.zeros(3, 16), None))
    assert tensors["sparse_values"].shape == (3, 8)
    assert tensors["sparse_values"].dtype == torch.float16
    assert tensors["sparse_indices"].shape == (3, 2)
