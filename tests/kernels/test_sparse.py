"""2:4 sparsity: what the stored numbers mean, and the product that leaves the zeros out."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kernels import ops
from kernels.quant import packed
from kernels.quant.sparse24 import Sparse24Weight
from kernels.sparse import naive

shapes = st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(0, 999))


def sparse(rows: int, eights: int, seed: int) -> tuple[Tensor, Sparse24Weight]:
    """(the weights [N, C] with their zeros, the same compressed)."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, 8 * eights, generator=generator)
    order = torch.rand(rows, 2 * eights, 4, generator=generator).argsort(-1)
    kept = (order < 2).flatten(1)
    values, indices = naive.compress(weight, kept)
    return weight * kept, Sparse24Weight(values, indices)


@given(shapes)
def test_two_of_four_come_back_to_their_places(case: tuple[int, int, int]) -> None:
    weight, found = sparse(*case)
    assert list(found.values.shape) == [case[0], 4 * case[1]]
    assert list(found.indices.shape) == [case[0], case[1]]
    assert torch.equal(found.dense(torch.float32), weight)


def test_an_index_has_two_bits_for_each_value_the_first_lowest() -> None:
    weight = torch.tensor([[0.0, 5.0, 0.0, 6.0, 7.0, 8.0, 0.0, 0.0]])
    values, indices = naive.compress(weight, weight != 0)
    assert values.tolist() == [[5.0, 6.0, 7.0, 8.0]]
    assert indices.tolist() == [[1 | 3 << 2 | 0 << 4 | 1 << 6]]


@given(shapes, st.integers(0, 5), st.booleans())
def test_the_product_is_that_of_the_weights_with_their_zeros(
    case: tuple[int, int, int], tokens: int, biased: bool
) -> None:
    weight, found = sparse(*case)
    x = torch.randn(tokens, weight.shape[1], generator=torch.Generator().manual_seed(1))
    bias = torch.arange(case[0]).float() if biased else None
    expected = torch.nn.functional.linear(x, weight, bias)
    assert torch.allclose(ops.linear_packed(x, found, bias), expected, atol=1e-5)


def test_maps_of_the_same_inputs_lie_below_each_other() -> None:
    pairs = [sparse(3, 2, 1), sparse(5, 2, 2)]
    joined = packed.concatenate([found for _, found in pairs])
    assert joined is not None
    assert torch.equal(joined.dense(torch.float32), torch.cat([weight for weight, _ in pairs]))


def test_what_is_not_two_of_four_is_refused() -> None:
    with pytest.raises(ValueError, match="not two of each four"):
        naive.compress(torch.ones(1, 8), torch.ones(1, 8, dtype=torch.bool))
    with pytest.raises(ValueError, match="rows of 12 weights, no multiple of 8"):
        naive.compress(torch.ones(1, 12), torch.ones(1, 12, dtype=torch.bool))
