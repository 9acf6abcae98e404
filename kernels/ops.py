"""The operations of a forward pass, each by the fastest implementation for its tensors.

Owns the choice: Triton kernels for CUDA tensors, and for all tensors where TRITON_INTERPRET=1
asks for the interpreter; else PyTorch (naive.py), whose CPU path is meant for work. What an
operation takes and gives is said in its naive.py. Knows nothing of models or requests. Nothing here
imports Triton before a kernel is needed.

Letters in shapes: T tokens of the step over all its sequences, S sequences, H query heads,
K key heads, D head_dim, B block size, M blocks of the longest table, V vocabulary.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from kernels.activations import naive as activations
from kernels.attention_spec import AttentionSpec
from kernels.cache.naive import CacheScales
from kernels.decode import naive as decode
from kernels.lora import naive as lora
from kernels.moe import naive as moe
from kernels.norms import naive as norms
from kernels.prefill import naive as prefill
from kernels.quant import fp8
from kernels.quant.fp8 import Fp8Weight
from kernels.quant.packed import PackedWeight
from kernels.quant.sparse24 import Sparse24Weight
from kernels.rope import naive as rope
from kernels.rope.naive import Rotation
from kernels.rope.tables import rope_tables
from kernels.sampling import naive as sampling
from kernels.sampling.naive import Draw

__all__ = [
    "AttentionSpec",
    "CacheScales",
    "Draw",
    "Rotation",
    "add_lora",
    "add_rms_norm",
    "attention",
    "decode_attention",
    "expert_mlp",
    "gelu_mul",
    "layer_norm",
    "linear_packed",
    "prefill_attention",
    "rms_norm",
    "rope_tables",
    "rotate_and_store",
    "route",
    "sample",
    "silu_mul",
    "uses_triton",
]

_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_HAS_TRITON = find_spec("triton") is not None
# With more tokens than this a matmul is bound by arithmetic: the weights are dequantized whole then
# and torch's own matmul is used. Not measured on a GPU.
_MAX_ROWS_IN_KERNEL = 256

Params = ParamSpec("Params")
Result = TypeVar("Result")


@cache
def _triton(module: str) -> Any:
    return import_module(module)


def uses_triton(tensor: Tensor) -> bool:
    """Whether the operations on tensor run as Triton kernels."""
    return _HAS_TRITON and (tensor.is_cuda or _INTERPRETED)


def _op(naive: Callable[Params, Result]) -> Callable[Params, Result]:
    """naive, or for its first tensor's device the function of its name in triton.py beside it."""
    module, name = naive.__module__.replace(".naive", ".triton"), naive.__name__

    @wraps(naive)
    def op(*args: Params.args, **kwargs: Params.kwargs) -> Result:
        first: Any = args[0]
        tensor = first[0] if isinstance(first, tuple) else first
        chosen = getattr(_triton(module), name) if uses_triton(tensor) else naive
        return chosen(*args, **kwargs)

    return op


rms_norm = _op(norms.rms_norm)
add_rms_norm = _op(norms.add_rms_norm)
layer_norm = _op(norms.layer_norm)
silu_mul = _op(activations.silu_mul)
gelu_mul = _op(activations.gelu_mul)
rotate_and_store = _op(rope.rotate_and_store)
prefill_attention = _op(prefill.prefill_attention)
attention = _op(prefill.attention)
decode_attention = _op(decode.decode_attention)
route = moe.route
expert_mlp = _op(moe.expert_mlp)
add_lora = _op(lora.add_lora)
sample = _op(sampling.sample)


def linear_packed(x: Tensor, weight: PackedWeight, bias: Tensor | None = None) -> Tensor:
    """[..., N] = x [..., C] times the weights [N, C], transposed, plus bias [N]."""
    if isinstance(weight, Sparse24Weight):
        return weight.linear(x, bias)
    if isinstance(weight, Fp8Weight) and not fp8.per_block(weight.weight, weight.scale):
        if _scales_fp8(x, weight.weight):
            return fp8.scaled_linear(x, weight.weight, weight.scale, bias)
    elif uses_triton(x) and x.numel() <= _MAX_ROWS_IN_KERNEL * x.shape[-1]:
        linear: Callable[..., Tensor] = _triton("kernels.quant.triton").linear
        return linear(x, weight, bias)
    return weight.linear(x, bias)


def _scales_fp8(x: Tensor, weight: Tensor) -> bool:
    """Whether torch._scaled_mm takes these."""
    if not x.is_cuda or torch.cuda.get_device_capability(x.device) < (8, 9):
        return False
    return not any(size % 16 for size in weight.shape)
