"""Adapters of a step's tokens: the meaning against one token after the other, and the kernel
against that."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kernels.lora import naive
from kernels.lora import triton as kernel
from kernels.lora.naive import LoraBank, LoraGroups, add_gains, group_tokens
from tests.kernels.tolerances import EXACT_ENOUGH, apart, assert_near, few, normal

Operation = Callable[[Tensor, Tensor, LoraBank, LoraGroups], Tensor]


def bank_of(ranks: dict[int, int], inputs: int, outputs: int, dtype: torch.dtype) -> LoraBank:
    """Adapters by their numbers and ranks, scaled so that outputs are about as large as inputs."""
    bank = LoraBank()
    for number, rank in ranks.items():
        down = normal(rank, inputs, dtype=dtype, seed=number) / inputs**0.5
        up = normal(outputs, rank, dtype=dtype, seed=50 + number) / rank**0.5
        bank.put(number, (down, up))
    return bank


@pytest.mark.parametrize("operation", [naive.add_lora, kernel.add_lora])
def test_each_token_has_what_its_own_adapter_adds(operation: Operation) -> None:
    bank = bank_of({0: 4, 2: 3}, 10, 6, torch.float32)
    whose, scales = [2, -1, 0, 2, 1, 0], [1.0, 9.0, 0.5, -1.0, 1.0, 2.0]
    x, out = normal(6, 10, seed=3), normal(6, 6, seed=4)
    expected = out.clone()
    for token, number in enumerate(whose):
        if number in bank.pairs:
            down, up = bank.pairs[number]
            expected[token] += scales[token] * (up @ (down @ x[token]))
    groups = group_tokens(torch.tensor(whose), torch.tensor(scales), "cpu")
    assert_near(operation(out.clone(), x, bank, groups), expected)


@pytest.mark.parametrize("with_bias", [False, True])
def test_gains_multiply_the_product_of_each_token_and_nothing_that_another_adds(
    with_bias: bool,
) -> None:
    bank = bank_of({0: 4, 2: 3, 3: 1}, 10, 6, torch.float32)
    for number in (2, 3):
        bank.put(number, bank.pairs[number], normal(6, seed=70 + number))
    product, bias = normal(6, 6, seed=4), normal(6, seed=5) if with_bias else None
    first, second = torch.tensor([2, -1, 0, 3, 2, 1]), torch.tensor([3, -1, 2, -1, -1, -1])
    scales, expected = torch.tensor([1.0, 9.0, 0.5, -1.0, 1.0, 2.0]), product.clone()
    for whose in (first, second):
        for token, number in enumerate(whose.tolist()):
            if number in bank.gains:
                expected[token] += scales[token] * bank.gains[number] * product[token]
    given = product if bias is None else product + bias
    uses = [
        (number, rows, groups.scales[rows, None])
        for groups in (group_tokens(whose, scales, "cpu") for whose in (first, second))
        for number, rows in groups.rows
    ]
    found = add_gains(given.clone(), bank, uses, bias)
    assert_near(found, expected if bias is None else expected + bias)
    for whole in (2, 0):
        found = add_gains(given.clone(), bank, [(whole, slice(None), 0.5)], bias)
        gain = bank.gains.get(whole, torch.zeros(6))
        assert_near(found, given + 0.5 * gain * product)
    bank.put(2, bank.pairs[2])
    assert bank.gains.keys() == {3}


@few
@given(
    st.lists(st.integers(-1, 4), min_size=1, max_size=40),
    st.dictionaries(st.integers(0, 4), st.integers(1, 20), min_size=1),
    st.integers(1, 70),
    st.integers(1, 70),
    st.sampled_from(EXACT_ENOUGH),
)
def test_the_kernel_matches_for_any_shape_and_for_adapters_that_are_not_there(
    whose: list[int], ranks: dict[int, int], inputs: int, outputs: int, dtype: torch.dtype
) -> None:
    bank = bank_of(ranks, inputs, outputs, dtype)
    x, out = normal(len(whose), inputs, dtype=dtype), normal(len(whose), outputs, dtype=dtype)
    groups = group_tokens(torch.tensor(whose), normal(len(whose), seed=9), "cpu")
    expected = naive.add_lora(out.clone(), x, bank, groups)
    assert_near(kernel.add_lora(out.clone(), apart(x), bank, groups), expected, 3.0)


def test_a_bank_forgets_an_adapter_that_is_taken_out() -> None:
    bank = bank_of({0: 4, 1: 2}, 8, 8, torch.float32)
    groups = group_tokens(torch.tensor([0, 1]), torch.ones(2), "cpu")
    x = normal(2, 8)
    before = kernel.add_lora(torch.zeros(2, 8), x, bank, groups)
    bank.put(0, None)
    for operation in (naive.add_lora, kernel.add_lora):
        after = operation(torch.zeros(2, 8), x, bank, groups)
        assert after[0].abs().max() == 0
        assert_near(after[1], before[1])


def test_tokens_are_grouped_by_adapter_where_they_stand_together_or_apart() -> None:
    groups = group_tokens(torch.tensor([1, 1, -1, 0, 3, 0]), torch.ones(6), "cpu")
    assert groups.order.tolist() == [3, 5, 0, 1, 4]
    assert groups.starts.tolist() == [0, 2, 4, 4, 5]
    (zero, apart_rows), (one, together), (three, single) = groups.rows
    assert (zero, one, three) == (0, 1, 3)
    assert isinstance(apart_rows, Tensor)
    assert apart_rows.tolist() == [3, 5]
    assert (together, single) == (slice(0, 2), slice(4, 5))
