"""Weights in oneDNN's layout: the same products, from a copy of their own."""

from __future__ import annotations

import pytest
import torch

from runner.backends.torch.layers.blocked_linear import BlockedLinear, can_block, to_blocked

SHAPES = ((48, 32), (1, 1), (3, 7), (128, 1), (1, 64), (200, 96))
TOLERANCE = {torch.bfloat16: 2e-2, torch.float32: 1e-5}  # of the largest output

pytestmark = pytest.mark.skipif(
    not can_block(torch.ones(1, 1)), reason="this torch was built without oneDNN"
)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_of_plain_weights(shape: tuple[int, int], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(sum(shape))
    weight = torch.randn(shape, generator=generator).to(dtype)
    linear = BlockedLinear(to_blocked(weight), dtype=dtype)
    for rows in (0, 1, 5, 40):
        x = torch.randn(rows, 2 * shape[1], generator=generator)[:, ::2]
        found, expected = linear(x), x.to(dtype).float() @ weight.float().t()
        assert found.dtype == torch.float32
        assert found.shape == expected.shape
        most = expected.abs().max().item() if rows else 0.0
        assert torch.allclose(found, expected, rtol=0, atol=TOLERANCE[dtype] * (most + 1e-3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_written_over_the_plain_weights_does_not_matter(
    shape: tuple[int, int], dtype: torch.dtype
) -> None:
    weight = torch.ones(shape, dtype=dtype)
    linear = BlockedLinear(to_blocked(weight), dtype=dtype)
    weight.fill_(7)
    assert torch.equal(linear(torch.ones(2, shape[1])), torch.full((2, shape[0]), shape[1] * 1.0))


def test_biases_are_added_in_the_type_of_the_inputs() -> None:
    weight, bias = torch.ones(4, 3, dtype=torch.bfloat16), torch.full((4,), 0.125)
    wide = BlockedLinear(to_blocked(weight), bias)(torch.ones(2, 3))
    assert torch.equal(wide, torch.full((2, 4), 3.125))
    narrow = BlockedLinear(to_blocked(weight), bias.bfloat16())(torch.ones(2, 3).bfloat16())
    assert torch.equal(narrow, torch.full((2, 4), 3.125).bfloat16())


def test_only_floats_that_it_multiplies_are_taken() -> None:
    assert not can_block(torch.ones(4, 4, dtype=torch.float16))
    assert not can_block(torch.ones(0, 4))
