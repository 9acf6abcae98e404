"""What adapters add to a map of tensors, against the sum by NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.native.linear import torch_kernels
from kernels.native.lora import ACTING, LoraMatrices
from kernels.native.torch_lora import TorchLora
from tests.kernels.tolerances import few

KERNELS = torch_kernels()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="no kernels were compiled here")


def matrices(rank: int, inputs: int, outputs: int, seed: int = 0) -> LoraMatrices:
    """With gains for odd seeds."""
    random = np.random.default_rng([seed, rank, inputs, outputs])
    a, b = (random.standard_normal(s, np.float32) for s in ((rank, inputs), (outputs, rank)))
    return LoraMatrices(a, b, random.standard_normal(outputs, np.float32) if seed % 2 else None)


@few
@given(
    st.integers(1, 9),
    st.integers(1, 130),
    st.lists(st.integers(1, 100), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(-1, 8), st.integers(0, 3), st.floats(-2, 2)), max_size=10),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.booleans(),
)
def test_each_row_has_what_its_adapters_add_to_each_part(
    tokens: int,
    inputs: int,
    outputs: list[int],
    uses: list[tuple[int, int, float]],
    dtype: torch.dtype,
    narrow: bool,
) -> None:
    assert KERNELS is not None
    lora = TorchLora(KERNELS, outputs, inputs, narrow=narrow)
    given_parts = {
        number: [
            None if (number + at) % 3 == 2 else matrices(2 + 9 * number, inputs, size, at)
            for at, size in enumerate(outputs)
        ]
        for number in (0, 1, 3)
    }
    for number, parts in given_parts.items():
        lora.put(number, parts)
    acting = np.array(sorted((u for u in uses if u[0] < tokens), key=lambda u: u[1]), ACTING)
    x = torch.randn(tokens, inputs, generator=torch.Generator().manual_seed(1)).to(dtype)
    out = torch.ones(tokens, sum(outputs), dtype=dtype)
    expected, sizes = np.ones((2, *out.shape))
    for column, number, scale in acting.tolist():
        rows = slice(None) if column < 0 else slice(column, column + 1)
        first = 0
        for part, size in zip(given_parts.get(number, []), outputs, strict=False):
            if part is not None:
                at = (rows, slice(first, first + size))
                values = x[rows].double().numpy()
                expected[at] += scale * (values @ part.a.T.astype(float)) @ part.b.T
                sizes[at] += abs(scale) * (np.abs(values) @ np.abs(part.a.T)) @ np.abs(part.b.T)
                if part.gain is not None:
                    expected[at] += scale * part.gain  # of a product of ones
                    sizes[at] += abs(scale * part.gain)
            first += size
    found = lora.add(out, x, acting)
    assert found.dtype == dtype
    close = 1e-2 if dtype == torch.bfloat16 else 2e-3 if narrow else 1e-5  # of the products' sizes
    assert (np.abs(found.double().numpy() - expected) <= close * sizes).all()


def test_numbers_that_float16_has_not_stay_as_they_are() -> None:
    assert KERNELS is not None
    lora = TorchLora(KERNELS, [4], 2, narrow=True)
    lora.put(0, [LoraMatrices(np.full((1, 2), 1e6, np.float32), np.ones((4, 1), np.float32))])
    found = lora.add(torch.zeros(1, 4), torch.ones(1, 2), np.array([(0, 0, 0.5)], ACTING))
    assert torch.equal(found, torch.full((1, 4), 1e6))


def test_an_adapter_that_is_removed_adds_nothing() -> None:
    assert KERNELS is not None
    lora = TorchLora(KERNELS, [4, 3], 2, narrow=False)
    acting = np.array([(-1, 5, 1.0)], ACTING)
    lora.put(5, [None, matrices(1, 2, 3)])
    assert lora
    assert lora.add(torch.zeros(1, 7), torch.ones(1, 2), acting)[0, 4:].abs().min() > 0
    lora.remove(5)
    assert not lora
    assert lora.add(torch.zeros(1, 7), torch.ones(1, 2), acting).abs().max() == 0


def test_only_adapters_with_gains_ask_for_the_bare_product() -> None:
    assert KERNELS is not None
    lora = TorchLora(KERNELS, [4, 3], 2, narrow=False)
    lora.put(1, [matrices(1, 2, 4), None])
    lora.put(2, [None, matrices(1, 2, 3, seed=1)])
    one, other = (np.array([(-1, number, 1.0)], ACTING) for number in (1, 2))
    assert not lora.multiplies(one)
    assert lora.multiplies(other)
    lora.put(2, [None, matrices(1, 2, 3)])
    assert not lora.multiplies(other)


def test_other_shapes_are_refused() -> None:
    assert KERNELS is not None
    lora = TorchLora(KERNELS, [4], 2, narrow=False)
    for out, x in (((1, 5), (1, 2)), ((1, 4), (1, 3)), ((2, 4), (1, 2))):
        with pytest.raises(ValueError, match=r"expected \(2, 4\)"):
            lora.add(torch.zeros(out), torch.zeros(x), np.empty(0, ACTING))
