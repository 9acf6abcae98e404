"""What a mixture of experts means, in PyTorch; the CPU path."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from kernels.quant.packed import PackedWeight

Activation = Callable[[Tensor], Tensor]  # [T, 2N] -> [T, N]
Weights: TypeAlias = Tensor | PackedWeight  # [E, N, C]


def route(
    logits: Tensor, top_k: int, normalize: bool, softmax_first: bool = True
) -> tuple[Tensor, Tensor]:
    """(weights float32 [T, top_k], experts int32 [T, top_k]) of router logits [T, E], best first.

    softmax_first: the weights are those of the softmax over all experts (normalize: divided by
    their sum); else the softmax over the chosen ones, as in gpt-oss, whose sum is 1 anyway.
    """
    if not softmax_first:
        best, experts = logits.float().topk(top_k, dim=-1)
        return torch.softmax(best, dim=-1), experts.int()
    weights, experts = torch.softmax(logits.float(), dim=-1).topk(top_k, dim=-1)
    if normalize:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights, experts.int()


def sort_by_expert(experts: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """(order int64 [T * top_k]: the places of experts [T, top_k], flat, sorted by expert; ends
    int64 [number]: where each expert's run ends)."""
    flat = experts.flatten().long()
    return flat.argsort(stable=True), torch.bincount(flat, minlength=number).cumsum(0)


def expert_mlp(
    x: Tensor,
    gate_up: Weights,
    down: Weights,
    weights: Tensor,
    experts: Tensor,
    activation: Activation,
    biases: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """[T, C] = sum over the token's experts of weight * down(activation(gate_up(x [T, C]))).

    gate_up [E, 2N, C], down [E, C, N], dense or packed; weights and experts [T, top_k] as from
    route, where E stands for an expert that is not here and adds nothing; biases of gate_up [E, 2N]
    and of down [E, C]; activation [rows, 2N] -> [rows, N], such as silu_mul.
    """
    order, ends = sort_by_expert(experts, gate_up.shape[0])
    tokens, shares = order // experts.shape[1], weights.flatten()[order]
    result = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    start = 0
    for expert, end in enumerate(ends.tolist()[: gate_up.shape[0]]):
        if end > start:
            rows = tokens[start:end]
            inner = activation(_linear(x[rows], gate_up, expert, biases and biases[0]))
            out = _linear(inner, down, expert, biases and biases[1]).float()
            result.index_add_(0, rows, out * shares[start:end, None])
        start = end
    return result.to(x.dtype)


def _linear(x: Tensor, weights: Weights, expert: int, biases: Tensor | None) -> Tensor:
    bias = None if biases is None else biases[expert]
    if isinstance(weights, Tensor):
        return functional.linear(x, weights[expert], bias)
    return weights[expert].linear(x, bias)
