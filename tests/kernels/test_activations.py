"""The gated activations: their meaning against the formula, the kernels against their meaning."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.activations import naive
from kernels.activations import triton as kernel
from tests.kernels.tolerances import TOLERANCE, apart, assert_near, few, normal


def test_the_first_half_is_the_gate() -> None:
    x = torch.tensor([[0.0, 1.0, 5.0, 3.0]])
    assert_near(naive.silu_mul(x), torch.tensor([[0.0, 3 * torch.sigmoid(torch.tensor(1.0))]]))
    half = 0.5 * (1 + torch.erf(torch.tensor(0.5).sqrt()))
    assert_near(naive.gelu_mul(x, tanh=False), torch.tensor([[0.0, 3 * half]]))


@few
@given(st.integers(0, 5), st.integers(1, 1500), st.sampled_from(tuple(TOLERANCE)))
def test_the_kernels_match_for_any_shape(tokens: int, width: int, dtype: torch.dtype) -> None:
    x = normal(tokens, 2 * width, dtype=dtype)
    assert_near(kernel.silu_mul(apart(x)), naive.silu_mul(x))
    for tanh in (True, False):
        assert_near(kernel.gelu_mul(apart(x), tanh), naive.gelu_mul(x, tanh))


def test_great_numbers_do_not_overflow() -> None:
    x = torch.tensor([[-3e4, 3e4, 1.0, 1.0]])
    for operation in (kernel.silu_mul, kernel.gelu_mul, naive.silu_mul, naive.gelu_mul):
        assert_near(operation(x), torch.tensor([[0.0, 3e4]]))
