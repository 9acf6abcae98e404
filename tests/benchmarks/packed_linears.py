"""A CPU's products with packed weights beside those with BF16:
python -m tests.benchmarks.packed_linears.

One map of the 0.6B shape, one thread, in turns, by processor time: what quantizing while loading
and 2:4 sparsity cost or save at a step of so many tokens. Sparse weights are unpacked when they are
loaded; `2:4 skipping` is kernels/sparse/naive.py, which leaves the zeros out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from kernels.native.linear import torch_kernels
from kernels.quant.rounding import to_fp8, to_int4, to_int8
from kernels.quant.sparse24 import Sparse24Weight
from runner.backends.torch.layers.native_linear import WeightRows, native_linear, packed_rows
from runner.jobs.torch.sparsity import sparsify

ROWS, COLUMNS, SECONDS = 3072, 1024, 0.2
Linear = Callable[[Tensor], Tensor]


def sides() -> dict[str, tuple[Linear, int]]:
    """(the map, the bytes of its weights) by what they are called."""
    kernels = torch_kernels()
    if kernels is None:
        raise SystemExit("hearth's kernels were not compiled: python -m kernels.native")
    weight = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0)) * 0.02
    floats = weight.to(torch.bfloat16)
    found: dict[str, tuple[Linear, int]] = {
        "BF16": (native_linear(kernels, [WeightRows(floats)]), floats.nbytes)
    }
    none = torch.empty(0, dtype=torch.int64)
    packed = {"int8": to_int8(weight, none), "int4": to_int4(weight, 64), "fp8": to_fp8(weight)}
    for name, each in packed.items():
        rows = packed_rows(each)
        assert rows is not None
        found[name] = native_linear(kernels, [rows]), sum(t.nbytes for t in each.tensors.values())
    numbers = sparsify(weight, None)
    sparse = Sparse24Weight(numbers.values.half(), numbers.indices)
    unpacked = sparse.dense(torch.float16)
    found["2:4 unpacked"] = native_linear(kernels, [WeightRows(unpacked)]), unpacked.nbytes
    found["2:4 skipping"] = sparse.linear, sparse.values.nbytes + sparse.indices.nbytes
    return found


def seconds_of(linear: Linear, x: Tensor) -> float:
    """Of processor time for one product, the least of several."""
    least, end = float("inf"), time.process_time() + SECONDS
    while time.process_time() < end:
        start = time.process_time()
        linear(x)
        least = min(least, time.process_time() - start)
    return least


def main() -> None:
    """Print each side's time and weights, and the ratio to BF16."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.packed_linears", description=__doc__
    )
    parser.add_argument("--tokens", default="1,8,64", help="of a step, comma-separated")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with torch.inference_mode():
        known = sides()
        for tokens in map(int, given.tokens.split(",")):
            x = torch.randn(tokens, COLUMNS)
            least = dict.fromkeys(known, float("inf"))
            for _ in range(given.rounds):
                for name, (linear, _size) in known.items():
                    least[name] = min(least[name], seconds_of(linear, x))
            for name, (_linear, size) in known.items():
                print(
                    f"{tokens:3} tokens, {name:12} {size / 1e6:5.2f} MB {least[name] * 1e6:9.0f} us"
                    f" {least['BF16'] / least[name]:6.2f} of BF16's speed"
                )


if __name__ == "__main__":
    main()
