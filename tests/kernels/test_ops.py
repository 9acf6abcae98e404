"""Which implementation an operation takes, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from kernels import ops
from tests.kernels.tolerances import assert_near, normal

ROOT = Path(__file__).parents[2]
EVERY_OPERATION = """
import sys
import torch
from kernels import ops
from kernels.lora.naive import LoraBank, group_tokens
from kernels.ops import AttentionSpec
from kernels.quant.fp8 import Fp8Weight
from kernels.quant.gguf import GgufWeight
from kernels.quant.int4 import Int4Weight
from kernels.quant.int8 import Int8Weight
from kernels.quant.mxfp4 import Mxfp4Weight

def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)

whole = zeros(2, dtype=torch.int64)
x, weight = zeros(2, 32), torch.ones(32)
ops.rms_norm(x, weight, 1e-5)
ops.add_rms_norm(x, x, weight, 1e-5)
ops.layer_norm(x, weight, weight, 1e-5)
ops.gelu_mul(x)
heads, cache, one = zeros(2, 1, 32), zeros(2, 16, 1, 32), zeros(2)
tables, lengths = zeros(2, 1, dtype=torch.int32), torch.ones(2, dtype=torch.int32)
starts = torch.arange(3, dtype=torch.int32)
cos, sin = ops.rope_tables(32, 1e4, 4, None, "cpu")
pools = (cache, cache.clone())
ops.rotate_and_store((heads, heads, heads), ops.Rotation(cos, sin, whole), pools, whole)
spec = AttentionSpec(1.0)
ops.decode_attention(heads, pools, tables, lengths, spec)
ops.prefill_attention(heads, pools, tables, starts, lengths, spec)
ops.attention(heads, heads, heads, starts, spec)
ops.sample(x, ops.Draw(one, whole, one, one, whole, whole))
adapters = LoraBank({0: (zeros(2, 32), zeros(4, 2))})
ops.add_lora(zeros(2, 4), x, adapters, group_tokens(whole * 0, one, "cpu"))
weights, experts = ops.route(zeros(2, 4), 2, normalize=True)
ops.expert_mlp(x, zeros(4, 8, 32), zeros(4, 32, 4), weights, experts, ops.silu_mul)
bytes_ = zeros(4, 16, dtype=torch.uint8)
ops.linear_packed(x, Int8Weight(zeros(4, 32, dtype=torch.int8), zeros(4)))
ops.linear_packed(x, Int4Weight(bytes_, zeros(4, 1), bytes_[:, :1]))
ops.linear_packed(x, Fp8Weight(zeros(4, 32).to(torch.float8_e4m3fn), torch.ones(())))
blocks = Fp8Weight(zeros(4, 256).to(torch.float8_e4m3fn), zeros(1, 2))
ops.linear_packed(zeros(2, 256), blocks)
ops.linear_packed(x, Mxfp4Weight(bytes_[:, None], bytes_[:, :1]))
ops.linear_packed(x, GgufWeight(zeros(4, 18, dtype=torch.uint8), "Q4_0"))
print(*sorted(name for name in sys.modules if name.startswith("kernels.")))
print("triton" in sys.modules)
"""


def modules_used(**environment: str) -> list[str]:
    """The modules of kernels that all operations on the CPU load."""
    rest = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", EVERY_OPERATION],
        cwd=ROOT,
        env=rest | environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    names, loaded = done.stdout.splitlines()
    assert loaded == str(environment.get("TRITON_INTERPRET") == "1")
    return [name for name in names.split() if name.endswith(".triton")]


def test_on_a_cpu_no_operation_loads_triton() -> None:
    assert modules_used() == []


def test_the_interpreter_runs_every_operation_that_has_a_kernel() -> None:
    having = (path.parent for path in (ROOT / "kernels").glob("*/triton.py"))
    expected = sorted(f"kernels.{folder.name}.triton" for folder in having)
    assert modules_used(TRITON_INTERPRET="1") == expected


def test_a_step_of_prefill_and_steps_of_decode_give_the_same() -> None:
    tokens, shape = 37, (4, 16, 2, 32)
    rows = [normal(tokens, heads, 32, seed=heads) for heads in (4, 2, 2)]
    cos, sin = ops.rope_tables(32, 1e4, 64, None, "cpu")
    tables = torch.tensor([[2, 0, 3]], dtype=torch.int32)
    positions = torch.arange(tokens)
    slots = tables[0, positions // 16].long() * 16 + positions % 16
    caches = (torch.zeros(shape), torch.zeros(shape))
    rotation = ops.Rotation(cos, sin, positions)
    query = ops.rotate_and_store((rows[0], rows[1], rows[2]), rotation, caches, slots)
    starts, lengths = (torch.tensor(n, dtype=torch.int32) for n in ([0, tokens], [tokens]))
    whole = ops.prefill_attention(query, caches, tables, starts, lengths, ops.AttentionSpec(0.2))
    again = (torch.zeros(shape), torch.zeros(shape))
    for token in range(tokens):
        at = slice(token, token + 1)
        turned = ops.rotate_and_store(
            (rows[0][at], rows[1][at], rows[2][at]),
            ops.Rotation(cos, sin, positions[at]),
            again,
            slots[at],
        )
        length = torch.tensor([token + 1], dtype=torch.int32)
        one = ops.decode_attention(turned, again, tables, length, ops.AttentionSpec(0.2))
        assert_near(one, whole[at])
