"""Experts that are packed alike are multiplied as one stack, others one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernels import ops
from kernels.quant.fp8 import Fp8Weight
from kernels.quant.gguf import GgufWeight
from kernels.quant.int4 import Int4Weight
from kernels.quant.int8 import Int8Weight
from kernels.quant.mxfp4 import Mxfp4Weight
from kernels.quant.packed import PackedWeight
from runner.backends.torch.layers.experts import ListedExperts, Routing, StackedExperts
from runner.backends.torch.layers.linear import DenseLinear
from runner.backends.torch.layers.packed_linear import PackedLinear, stack_packed
from tests.kernels import int8_weights
from tests.unit.runner.backends.torch.models.running import load, write_quantized

ROWS, WIDTH = 6, 64


def floats(seed: int) -> torch.Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed))


def four_bits(seed: int, order: torch.Tensor | None = None) -> Int4Weight:
    codes = (floats(seed).abs() * 50).to(torch.uint8)
    scales = floats(seed)[:, :2].abs()
    return Int4Weight(codes[:, : WIDTH // 2], scales, codes[:, :2] % 16, order)


def of_a_tensor(seed: int) -> Fp8Weight:
    return Fp8Weight(floats(seed).to(torch.float8_e4m3fn), torch.tensor(0.5 + seed))


def of_rows(seed: int) -> Fp8Weight:
    return Fp8Weight(floats(seed).to(torch.float8_e4m3fn), 1 + floats(seed)[:, 0].abs())


def gguf_rows(seed: int, kind: str = "Q8_0") -> GgufWeight:
    rows = torch.zeros(ROWS, WIDTH // 32 * (34 if kind == "Q8_0" else 18), dtype=torch.uint8)
    rows[:, 0:2] = torch.tensor([1.0 + seed], dtype=torch.float16).view(torch.uint8)
    rows[:, 2:18] = (floats(seed)[:, :16].abs() * 60).to(torch.uint8)
    return GgufWeight(rows, kind)


FORMATS: dict[str, tuple[Callable[[int], PackedWeight], type]] = {
    "int4": (four_bits, Int4Weight),
    "int8": (lambda seed: Int8Weight(*int8_weights.quantize(floats(seed))), Int8Weight),
    "fp8_tensor": (of_a_tensor, Fp8Weight),
    "fp8_rows": (of_rows, Fp8Weight),
    "gguf": (gguf_rows, GgufWeight),
}


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("name", FORMATS)
def test_each_expert_of_a_stack_computes_what_it_did_alone(name: str, biased: bool) -> None:
    make, kind = FORMATS[name]
    biases = [floats(9)[:, seed] if biased else None for seed in range(3)]
    maps = [PackedLinear(make(seed), biases[seed]) for seed in range(3)]
    found = stack_packed(maps)
    assert found is not None
    weights, bias = found
    assert isinstance(weights, kind)
    assert (bias is not None) == biased
    x = torch.linspace(-1, 1, WIDTH)[None]
    for number, alone in enumerate(maps):
        of_stack = weights[number].linear(x, None if bias is None else bias[number])
        assert torch.allclose(of_stack, alone(x), atol=1e-5)


def test_experts_that_are_not_packed_alike_make_no_stack() -> None:
    order = torch.arange(WIDTH).flip(0)
    one = PackedLinear(four_bits(1))
    assert stack_packed([one, PackedLinear(four_bits(2, order))]) is None
    assert stack_packed([PackedLinear(gguf_rows(1)), PackedLinear(gguf_rows(1, "Q4_0"))]) is None
    assert stack_packed([one, PackedLinear(of_rows(1))]) is None
    assert stack_packed([one, DenseLinear(floats(1))]) is None
    assert stack_packed([one, PackedLinear(four_bits(2), floats(1)[:, 0])]) is None


@pytest.mark.parametrize(("kind", "packed"), [("fp8_rows", Fp8Weight), ("mxfp4", Mxfp4Weight)])
def test_the_experts_of_a_quantized_checkpoint_stay_packed_in_a_stack(
    kind: str, packed: type, tmp_path: Path
) -> None:
    model = load(write_quantized(tmp_path, kind), packed=True)
    mixtures = [layer.feed_forward for layer in model.layers]
    assert not any(isinstance(mixture, ListedExperts) for mixture in mixtures)
    found = [mixture for mixture in mixtures if isinstance(mixture, StackedExperts)]
    assert found
    assert all(isinstance(part, packed) for mix in found for part in (mix.gate_up, mix.down))


def test_asking_all_experts_gives_what_asking_the_chosen_ones_does() -> None:
    routing = Routing(4, 2, normalize=True)
    experts = tuple(DenseLinear(floats(seed)[:, :ROWS]) for seed in range(4))
    router = DenseLinear(floats(8)[:4, :ROWS])
    mixture = ListedExperts(router, routing, experts)
    x = floats(9)[:, :ROWS]
    shares, chosen = ops.route(router(x), 2, normalize=True)
    found = mixture.by_all(x, shares, chosen)
    assert torch.allclose(found, mixture.by_chosen(x, shares, chosen), atol=1e-6)
    assert torch.equal(mixture(x), mixture.by_chosen(x, shares, chosen))
