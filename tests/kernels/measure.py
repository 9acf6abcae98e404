"""`python -m tests.kernels.measure [--device cuda] [--small]`: how fast the operations are here.

Prints a line each: milliseconds (the median of the runs), and the rate, beside what the machine
gives in a plain copy and a plain matmul. Shapes are those of Llama 3.1 8B; --small: a fiftieth of
them, to see that it runs. Needs no model.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from kernels import ops
from kernels.quant.fp8 import Fp8Weight
from kernels.quant.gguf import GgufWeight
from kernels.quant.int4 import Int4Weight
from kernels.quant.int8 import Int8Weight
from tests.kernels import int8_weights

HEADS, KEY_HEADS, WIDTH, HIDDEN, INNER, VOCABULARY = 32, 8, 128, 4096, 14336, 128256
BLOCK = 64


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and how much is measured. share: of the full sizes."""

    device: str
    share: float
    runs: int
    together: int
    plain: dict[str, float] = field(default_factory=dict)  # rates of the plain copy and matmul

    def size(self, full: int) -> int:
        """A number of tokens, bytes or sequences."""
        return max(1, int(full * self.share))

    def normal(self, *shape: int) -> Tensor:
        """Random numbers in bfloat16."""
        return torch.randn(shape, device=self.device, dtype=torch.bfloat16)

    def seconds(self, operation: Callable[[], object]) -> float:
        """The median time of one run, after two that are not counted. Of runs that are launched
        together, so that waiting for the device is not counted either."""
        times = []
        for _ in range(self.runs + 2):
            self.wait()
            start = time.perf_counter()
            for _ in range(self.together):
                operation()
            self.wait()
            times.append((time.perf_counter() - start) / self.together)
        return statistics.median(times[2:])

    def wait(self) -> None:
        """Until all that was launched is done."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def bytes(self, name: str, operation: Callable[[], object], count: int) -> None:
        """Print the rate at which an operation moves count bytes, and its share of a copy's."""
        taken = self.seconds(operation)
        rate = count / taken
        share = rate / self.plain.setdefault("bytes", rate)
        print(f"{name:<34}{taken * 1e3:10.3f} ms {rate / 1e9:10.1f} GB/s {share:12.2f} of a copy")

    def sums(self, name: str, operation: Callable[[], object], count: float) -> None:
        """Print the rate at which an operation does count additions and multiplications, and its
        share of a matmul's."""
        taken = self.seconds(operation)
        rate = count / taken
        share = rate / self.plain.setdefault("sums", rate)
        print(
            f"{name:<34}{taken * 1e3:10.3f} ms {rate / 1e12:10.2f} TFLOP/s {share:9.2f} of a matmul"
        )


def machine_itself(machine: Machine) -> None:
    source = torch.empty(machine.size(1 << 30), dtype=torch.uint8, device=machine.device)
    target = torch.empty_like(source)
    machine.bytes("copy", lambda: target.copy_(source), 2 * source.numel())
    side = machine.size(8192)
    square = machine.normal(side, side)
    machine.sums("matmul bf16", lambda: square @ square, 2.0 * side**3)


def attention(machine: Machine) -> None:
    sequences, context = machine.size(64), max(BLOCK, machine.size(4096) // BLOCK * BLOCK)
    blocks = context // BLOCK
    shape = sequences * blocks, BLOCK, KEY_HEADS, WIDTH
    caches = machine.normal(*shape), machine.normal(*shape)
    tables = torch.randperm(sequences * blocks, device=machine.device).int().view(sequences, -1)
    lengths = torch.full((sequences,), context, dtype=torch.int32, device=machine.device)
    query, spec = machine.normal(sequences, HEADS, WIDTH), ops.AttentionSpec(WIDTH**-0.5)
    machine.bytes(
        f"decode attention {sequences} x {context}",
        lambda: ops.decode_attention(query, caches, tables, lengths, spec),
        2 * caches[0].numel() * 2,
    )
    for kind in (torch.int8, torch.float8_e4m3fn):
        narrow = (caches[0].to(kind), caches[1].to(kind))
        ones = torch.ones(caches[0].shape[:3], device=machine.device)
        machine.bytes(
            f"  its cache in {str(kind).removeprefix('torch.')}",
            partial(
                ops.decode_attention,
                query,
                narrow,
                tables,
                lengths,
                spec,
                ops.CacheScales(ones, ones),
            ),
            2 * (caches[0].numel() + 4 * ones.numel()),
        )
    rows, key = machine.normal(context, HEADS, WIDTH), machine.normal(context, KEY_HEADS, WIDTH)
    starts = torch.tensor([0, context], dtype=torch.int32, device=machine.device)
    products = 2.0 * HEADS * WIDTH * context**2
    machine.sums(
        f"prefill attention {context}",
        lambda: ops.prefill_attention(rows, caches, tables[:1], starts, lengths[:1], spec),
        products,
    )
    rows, key = rows.transpose(0, 1)[None], key.transpose(0, 1)[None]
    machine.sums(
        f"torch's attention {context}",
        lambda: torch.nn.functional.scaled_dot_product_attention(
            rows, key, key, is_causal=True, enable_gqa=True
        ),
        products,
    )


def matmuls(machine: Machine) -> None:
    rows = machine.size(INNER) // 16 * 16 or 16
    dense, x = machine.normal(rows, HIDDEN), machine.normal(1, HIDDEN)
    machine.bytes("matmul of a token, bf16", lambda: x @ dense.T, 2 * dense.numel())
    int8 = Int8Weight(*int8_weights.quantize(dense))
    machine.bytes("  int8", lambda: ops.linear_packed(x, int8), int8.weight.numel())
    packed = int8.weight.view(torch.uint8)[:, : HIDDEN // 2].contiguous()
    groups = torch.ones(rows, HIDDEN // 128, dtype=torch.bfloat16, device=machine.device)
    int4 = Int4Weight(packed, groups, torch.full_like(groups, 8, dtype=torch.uint8))
    machine.bytes("  int4, groups of 128", lambda: ops.linear_packed(x, int4), packed.numel())
    scale = torch.ones(rows, device=machine.device)
    fp8 = Fp8Weight(dense.to(torch.float8_e4m3fn), scale)
    machine.bytes("  fp8, a scale a row", lambda: ops.linear_packed(x, fp8), dense.numel())
    blocks = torch.zeros(rows, HIDDEN // 256 * 144, dtype=torch.uint8, device=machine.device)
    q4_k = GgufWeight(blocks, "Q4_K")
    machine.bytes("  Q4_K", lambda: ops.linear_packed(x, q4_k), blocks.numel())


def experts(machine: Machine) -> None:
    """Mixtures of 8 experts in four bits, and the same in bfloat16: bytes of those chosen."""
    inner = machine.size(INNER) // 64 * 64 or 64
    x, count = machine.normal(4, HIDDEN), 8
    chosen = (torch.arange(8, device=machine.device) % count).int().view(4, 2)
    shares = torch.full((4, 2), 0.5, device=machine.device)

    def int4(rows: int, width: int) -> Int4Weight:
        codes = torch.zeros((count, rows, width // 2), dtype=torch.uint8, device=machine.device)
        scales = torch.ones((count, rows, width // 64), dtype=torch.bfloat16, device=machine.device)
        return Int4Weight(codes, scales, torch.zeros_like(scales, dtype=torch.uint8))

    packed = int4(2 * inner, HIDDEN), int4(HIDDEN, inner)
    plain = machine.normal(count, 2 * inner, HIDDEN), machine.normal(count, HIDDEN, inner)
    sizes = sum(part.numel() for part in plain)
    for name, pair, size in (("bf16", plain, 2 * sizes), ("int4", packed, sizes // 2)):
        machine.bytes(
            f"8 experts, 4 tokens, {name}",
            partial(ops.expert_mlp, x, *pair, shares, chosen, ops.silu_mul),
            size,
        )


def rows(machine: Machine) -> None:
    count = machine.size(64)
    x, weight = machine.normal(count, HIDDEN), machine.normal(HIDDEN)
    size = 2 * x.numel()
    machine.bytes(
        f"residual and norm of {count}", lambda: ops.add_rms_norm(x, x, weight, 1e-5), 4 * size
    )
    logits = torch.randn(count, VOCABULARY, device=machine.device)

    def each(value: float, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.full((count,), value, dtype=dtype, device=machine.device)

    seeds = each(0, torch.int64)
    for name, top_k, top_p in (("all", 0, 1.0), ("top_k 40, top_p 0.9", 40, 0.9)):
        top_ks = each(top_k, torch.int64)
        draw = ops.Draw(each(0.8), top_ks, each(top_p), each(0.0), seeds, seeds)
        machine.bytes(
            f"sample {count}, {name}", partial(ops.sample, logits, draw), 4 * logits.numel()
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true")
    chosen = parser.parse_args()
    share, runs = (0.02, 3) if chosen.small else (1.0, 20)
    machine = Machine(chosen.device, share, runs, 10 if chosen.device == "cuda" else 1)
    name = torch.cuda.get_device_name() if chosen.device == "cuda" else "CPU"
    print(f"torch {torch.__version__} on {name}")
    for measured in (machine_itself, attention, matmuls, experts, rows):
        measured(machine)


if __name__ == "__main__":
    main()
