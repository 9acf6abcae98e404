"""Products with weights as they lie: the compiled kernel against PyTorch in float64."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import native
from tests.properties import examples

LIBRARY = native.library_path("torch") if find_spec("torch") is not None else None
if LIBRARY is None:
    pytest.skip("no kernels were compiled here", allow_module_level=True)

import torch  # noqa: E402

from kernels.native.linear import F8, I4, I8, Matrices, TorchKernels, supports  # noqa: E402
from kernels.quant.rounding import to_fp8, to_int4, to_int8  # noqa: E402
from runner.backends.torch.layers.native_linear import packed_rows  # noqa: E402

Tensor = Any
KERNELS = TorchKernels(LIBRARY)
WEIGHTS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
BLOCKS = {"Q8_0": 32, I8: 1, F8: 1, I4: 64}  # weights
# Of the sum of the products' sizes: sums in another order, factors and the result in bfloat16
EXACT, BF16, ROUNDED = 1e-6, 2**-7, 2**-8


@dataclass(frozen=True)
class Case:
    """Sizes of one product; padding: columns of the weights' memory that are of other tensors;
    shift: bytes by which the weights lie beside an address of 64."""

    rows: int
    k: int
    columns: int
    padding: int
    shift: int


cases = st.builds(
    Case,
    rows=st.sampled_from([1, 3, 4, 5, 31, 32, 33, 70]),
    k=st.one_of(st.integers(1, 130), st.sampled_from([1023, 1024, 1025, 2080])),
    columns=st.sampled_from([1, 2, 5, 6, 7, 13, 32, 33, 45]),
    padding=st.sampled_from([0, 1, 8]),
    shift=st.sampled_from([0, 2, 7]),
)


def lying(values: Tensor, case: Case) -> Tensor:
    """The same values somewhere in a larger memory."""
    wide = torch.cat((values, values.new_zeros(len(values), case.padding)), 1)
    content = bytearray(case.shift) + wide.contiguous().view(torch.uint8).numpy().tobytes()
    found = torch.frombuffer(content, dtype=torch.uint8, offset=case.shift).view(values.dtype)
    return found.view(wide.shape)[:, : values.shape[1]]


def weights_of(kind: str, case: Case, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(as they are given, what they are worth in float64 [rows, k])."""
    values = torch.randn(case.rows, case.k, generator=generator)
    if kind in WEIGHTS:
        given = lying(values.to(WEIGHTS[kind]), case)
        return given, given.double()
    if kind == I8:
        given = lying(to_int8(values, torch.empty(0, dtype=torch.int64)).weight, case)
        return given, given.double()
    if kind == F8:
        given = lying(to_fp8(values).weight, case)
        return given, given.double()
    if kind == I4:
        packed = to_int4(values, 64)
        rows = packed_rows(packed)
        assert rows is not None
        return lying(rows.weight, case), worth_of_blocks(rows.weight)
    q8 = gguf.GGMLQuantizationType.Q8_0
    packed = gguf.quantize(values.numpy(), q8)
    worth = torch.from_numpy(np.asarray(gguf.dequantize(packed, q8))).double()
    return lying(torch.from_numpy(np.asarray(packed)), case), worth


def worth_of_blocks(rows: Tensor) -> Tensor:
    """The numbers of I4, by what types.h says of them."""
    blocks = rows.view(len(rows), -1, 36)
    scale, least = blocks[..., :4].contiguous().view(torch.float16).double().split(1, -1)
    bytes_ = blocks[..., 4:].unflatten(-1, (2, 16))
    numbers = torch.stack((bytes_ & 15, bytes_ >> 4), -2).flatten(-3)
    return (numbers * scale + least).flatten(1)


@examples(30)
@given(
    case=cases,
    kinds=st.lists(st.sampled_from(sorted((*WEIGHTS, *BLOCKS))), min_size=1, max_size=3),
    inputs=st.sampled_from([torch.float32, torch.bfloat16]),
    outputs=st.sampled_from([torch.float32, torch.bfloat16]),
    allow_bf16=st.booleans(),
    seed=st.integers(0, 99),
)
def test_products_are_those_of_the_numbers_that_the_weights_are(
    case: Case,
    kinds: list[str],
    inputs: torch.dtype,
    outputs: torch.dtype,
    allow_bf16: bool,
    seed: int,
) -> None:
    block = max(BLOCKS.get(kind, 1) for kind in kinds)
    case = Case(case.rows, -(-case.k // block) * block, case.columns, case.padding, case.shift)
    generator = torch.Generator().manual_seed(seed)
    pairs = [weights_of(kind, case, generator) for kind in kinds]
    formats = [kind if kind in BLOCKS else None for kind in kinds]
    matrices = Matrices(KERNELS, [given for given, _ in pairs], formats)
    x = torch.randn(case.columns, case.k + 3, generator=generator).to(inputs)[:, 2:-1]
    found = matrices.multiply(x, dtype=outputs, allow_bf16=allow_bf16)
    worth = torch.cat([worth for _, worth in pairs])
    expected, sizes = x.double() @ worth.t(), x.double().abs() @ worth.abs().t()
    assert found.dtype == outputs
    assert found.shape == expected.shape
    close = BF16 if allow_bf16 else EXACT
    allowed = close * sizes + (ROUNDED * expected.abs() if outputs == torch.bfloat16 else 0)
    assert bool(((found.double() - expected).abs() <= allowed + 1e-30).all())


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_share_the_rows(threads: int) -> None:
    before = torch.get_num_threads()
    generator = torch.Generator().manual_seed(1)
    weight, x = (torch.randn(size, 64, generator=generator) for size in (1000, 3))
    torch.set_num_threads(threads)
    try:
        found = Matrices(KERNELS, [weight], [None]).multiply(x, dtype=torch.float32)
    finally:
        torch.set_num_threads(before)
    assert torch.allclose(found, x @ weight.t(), atol=1e-4)


def test_torch_and_the_kernels_have_the_same_threads() -> None:
    program = """if True:
        from pathlib import Path
        import torch
        from kernels.native.linear import Matrices, TorchKernels
        import sys
        torch.set_num_threads(2)
        one = torch.ones(1000, 1000)
        one @ one
        torch.nn.functional.silu(one)
        before = len(list(Path("/proc/self/task").iterdir()))
        found = Matrices(TorchKernels(Path(sys.argv[1])), [one], [None])
        found.multiply(one[:3], dtype=torch.float32)
        print(before, len(list(Path("/proc/self/task").iterdir())))
    """
    command = [sys.executable, "-c", program, str(LIBRARY)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    before, after = done.stdout.split()
    assert before == after


def test_no_rows_give_no_rows() -> None:
    matrices = Matrices(KERNELS, [torch.ones(5, 4)], [None])
    assert matrices.multiply(torch.ones(0, 4), dtype=torch.float32).shape == (0, 5)


def test_a_number_that_is_none_reaches_its_own_row_only() -> None:
    for columns in (2, 40):
        x = torch.ones(columns, 40)
        x[1, 3] = float("nan")
        found = Matrices(KERNELS, [torch.ones(9, 40)], [None]).multiply(x, dtype=torch.float32)
        assert found.isnan().any(dim=1).tolist() == [row == 1 for row in range(columns)]


@pytest.mark.parametrize(
    "x", [torch.ones(2, 5), torch.ones(4), torch.ones(2, 4, dtype=torch.float64)]
)
def test_inputs_of_another_shape_or_type_are_refused(x: Tensor) -> None:
    with pytest.raises(ValueError, match="expected"):
        Matrices(KERNELS, [torch.ones(5, 4)], [None]).multiply(x, dtype=torch.float32)


def test_weights_that_are_not_multiplied_so_are_refused() -> None:
    wide, packed = torch.ones(4, 8), torch.zeros(4, 34, dtype=torch.uint8)
    refused = [
        (wide.double(), None),
        (wide[:, ::2], None),
        (torch.ones(0, 8), None),
        (torch.ones(8), None),
        (wide[:1].expand(4, 8), None),
        (packed, "Q4_0"),
        (packed[:, :33], "Q8_0"),
        (wide, "Q8_0"),
    ]
    for weight, kind in refused:
        assert not supports(weight, kind)
        with pytest.raises(ValueError, match="cannot be multiplied"):
            Matrices(KERNELS, [weight], [kind])
    with pytest.raises(ValueError, match="widths"):
        Matrices(KERNELS, [wide, torch.ones(4, 9)], [None, None])
