"""A mixture of experts in place of a feed-forward: which experts a token goes to, and what they
compute.

Knows no file; the experts' weights lie together where they are alike, and are maps of their own
where they are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Self

import torch

from kernels import ops
from kernels.quant.packed import PackedWeight
from runner.backends.torch.config import MAX_EXPERTS, Config
from runner.backends.torch.layers.decoder import Activation, GatedFeedForward
from runner.backends.torch.layers.linear import DenseLinear, Linear
from runner.backends.torch.layers.packed_linear import stack_packed
from runner.backends.torch.loading.decoder_builder import DecoderBuilder

Tensor = Any
_MAX_CAPTURED_TOKENS = 256  # the most sequences of a decode step, see runner/models/memory_plan.py


@dataclass(frozen=True, slots=True)
class Routing:
    """How many experts there are and a token has. normalize: the shares of a token's experts are
    made to sum to one. softmax_first: see ops.route. own: the experts that are here; None: all."""

    experts: int
    chosen: int
    normalize: bool
    softmax_first: bool = True
    own: range | None = None

    @classmethod
    def read(cls, config: Config, key: str, *, normalize: bool, softmax_first: bool = True) -> Self:
        """key: what says how many there are. Raises ConvertError."""
        experts = config.integer(key, maximum=MAX_EXPERTS)
        chosen = config.integer("num_experts_per_tok")
        if chosen > experts:
            config.refuse("num_experts_per_tok", f"{chosen} of {experts} experts")
        return cls(experts, chosen, normalize, softmax_first)

    def of(self, own: range) -> Self:
        """The same where only these experts are."""
        return self if len(own) == self.experts else replace(self, own=own)


@dataclass(frozen=True, slots=True)
class StackedExperts:
    """gate_up [E, 2N, C] and down [E, C, N] of all experts, floats or packed; biases [E, 2N] and
    [E, C]."""

    router: Linear
    routing: Routing
    gate_up: Tensor | PackedWeight
    down: Tensor | PackedWeight
    activation: Activation
    biases: tuple[Tensor, Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """[T, C] of x [T, C]."""
        shares, experts = _route(self.router, self.routing, x)
        return ops.expert_mlp(
            x, self.gate_up, self.down, shares, experts, self.activation, biases=self.biases
        )


@dataclass(frozen=True, slots=True)
class ListedExperts:
    """Each expert is a feed-forward of its own. On a GPU a step of few tokens, which a CUDA graph
    may be captured of, asks all of them: which ones are chosen stays on the device."""

    router: Linear
    routing: Routing
    experts: tuple[Callable[[Tensor], Tensor], ...]

    def __call__(self, x: Tensor) -> Tensor:
        """[T, C] of x [T, C]."""
        shares, chosen = _route(self.router, self.routing, x)
        if x.is_cuda and len(x) <= _MAX_CAPTURED_TOKENS:
            return self.by_all(x, shares, chosen)
        return self.by_chosen(x, shares, chosen)

    def by_all(self, x: Tensor, shares: Tensor, chosen: Tensor) -> Tensor:
        """Every expert computes every token; shares [T, k] of the chosen ones [T, k]."""
        weights = torch.zeros(len(x), len(self.experts) + 1, device=x.device)
        weights.scatter_(1, chosen.long(), shares)  # those of experts elsewhere go into the last
        result = torch.zeros_like(x, dtype=torch.float32)
        for number, expert in enumerate(self.experts):
            result += expert(x).float() * weights[:, number, None]
        return result.to(x.dtype)

    def by_chosen(self, x: Tensor, shares: Tensor, chosen: Tensor) -> Tensor:
        """Each expert computes the tokens that chose it, whose number the host has to know."""
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
        counts = counts[: len(self.experts)]  # what comes after is of experts elsewhere
        rows, weights = order // self.routing.chosen, shares.flatten()[order, None]
        result, start = torch.zeros_like(x, dtype=torch.float32), 0
        for expert, count in zip(self.experts, counts, strict=True):
            if count:
                places = rows[start : start + count]
                result.index_add_(
                    0, places, expert(x[places]).float() * weights[start : start + count]
                )
                start += count
        return result.to(x.dtype)


def _route(router: Linear, routing: Routing, x: Tensor) -> tuple[Tensor, Tensor]:
    """The shares [T, k] of a token's experts, and their places among those that are here, behind
    which that of one elsewhere is."""
    shares, experts = ops.route(
        router(x),
        routing.chosen,
        normalize=routing.normalize,
        softmax_first=routing.softmax_first,
    )
    own = routing.own
    if own is None:
        return shares, experts
    absent = (experts < own.start) | (experts >= own.stop)
    return shares, (experts - own.start).masked_fill(absent, len(own))


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """What the three maps of an expert and the router are called. bias: they have one each."""

    gate: str
    up: str
    down: str
    router: str = "gate"
    bias: bool = False


def read_experts(
    builder: DecoderBuilder,
    prefix: str,
    names: ExpertNames,
    routing: Routing,
    width: int,
    activation: Activation = ops.silu_mul,
) -> StackedExperts | ListedExperts:
    """The router and the experts of width: prefix + "experts.0." and so on. Raises
    ModelLoadFailed."""
    weights, hidden, bias = builder.weights, builder.config.shape.hidden, names.bias
    router = weights.linear(f"{prefix}{names.router}", hidden, routing.experts, bias=bias)
    own = builder.experts(routing.experts)
    routing = routing.of(own)

    def expert(number: int) -> GatedFeedForward:
        start = f"{prefix}experts.{number}."
        maps = [(start + names.gate, width), (start + names.up, width)]
        return GatedFeedForward(
            weights.stacked(maps, hidden, bias=bias, fixed=True),
            weights.linear(start + names.down, width, hidden, bias=bias, fixed=True),
            activation,
        )

    first = expert(own[0])
    others = (expert(number) for number in own[1:])
    if isinstance(first.gate_up, DenseLinear) and isinstance(first.down, DenseLinear):
        return _stack_dense(router, routing, (first, len(own)), others)
    return _stack_packed(router, routing, (first, *others), activation)


def _stack_packed(
    router: Linear,
    routing: Routing,
    experts: tuple[GatedFeedForward, ...],
    activation: Activation,
) -> StackedExperts | ListedExperts:
    """Stacks of packed experts, where all are packed alike."""
    gate_up = stack_packed([expert.gate_up for expert in experts])
    down = None if gate_up is None else stack_packed([expert.down for expert in experts])
    if gate_up is None or down is None or (gate_up[1] is None) != (down[1] is None):
        return ListedExperts(router, routing, experts)
    biases = None if gate_up[1] is None or down[1] is None else (gate_up[1], down[1])
    return StackedExperts(router, routing, gate_up[0], down[0], activation, biases)


def _stack_dense(
    router: Linear,
    routing: Routing,
    first_of: tuple[GatedFeedForward, int],
    others: Iterable[GatedFeedForward],
) -> StackedExperts:
    """Puts the experts together one by one, so that only one is there twice. first_of: the first,
    and how many there are."""
    first, count = first_of
    inner, outer = _DenseStack(first.gate_up, count), _DenseStack(first.down, count)
    for number, expert in enumerate(chain((first,), others)):
        inner.put(number, expert.gate_up)
        outer.put(number, expert.down)
    biases = None
    if inner.bias is not None and outer.bias is not None:
        biases = inner.bias, outer.bias
    return StackedExperts(router, routing, inner.weight, outer.weight, first.activation, biases)


class _DenseStack:
    """The weights of count maps such as first, one behind the other."""

    def __init__(self, first: Linear, count: int) -> None:
        assert isinstance(first, DenseLinear)
        bias = first.bias
        self.weight = first.weight.new_empty((count, *first.weight.shape))
        self.bias = None if bias is None else bias.new_empty((count, *bias.shape))

    def put(self, number: int, linear: Linear) -> None:
        assert isinstance(linear, DenseLinear)
        self.weight[number] = linear.weight
        if self.bias is not None:
            self.bias[number] = linear.bias
