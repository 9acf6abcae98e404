"""What adapters add to a linear map in a step whose tokens have several, in PyTorch; the CPU path.

As SGMV of Punica (Chen et al., 2023): tokens are taken together by their adapter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

Rows: TypeAlias = Tensor | slice


@dataclass(frozen=True, slots=True)
class LoraGroups:
    """The tokens that adapters act on, one for each at most. order int64 [N]: by adapter; starts
    int64 [A + 1]: where those of an adapter begin in it; scales float32 [T]: of each token's.
    rows: the adapters that act, with their tokens."""

    order: Tensor
    starts: Tensor
    scales: Tensor
    rows: Sequence[tuple[int, Rows]]


@dataclass(slots=True)
class LoraBank:
    """What each of A adapters adds to one map: down [R, inputs] and up [outputs, R], R its own, and
    gains float32 [outputs] of those that have some, see add_gains."""

    pairs: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    gains: dict[int, Tensor] = field(default_factory=dict)
    _stacked: tuple[Tensor, Tensor] | None = None

    def put(
        self, adapter: int, pair: tuple[Tensor, Tensor] | None, gain: Tensor | None = None
    ) -> None:
        """Replace an adapter's; None: it adds nothing."""
        self.pairs.pop(adapter, None)
        self.gains.pop(adapter, None)
        if gain is not None:
            self.gains[adapter] = gain
        if pair is not None:
            self.pairs[adapter] = pair
        self._stacked = None

    def stacked(self, adapters: int) -> tuple[Tensor, Tensor]:
        """(down [A, R, inputs], up [A, outputs, R]) with zeros where there is nothing."""
        known = self._stacked
        if known is None or len(known[0]) < adapters:
            rank = max(len(down) for down, _ in self.pairs.values())
            down, up = next(iter(self.pairs.values()))
            count = max(adapters, *(number + 1 for number in self.pairs))
            known = (
                down.new_zeros((count, rank, down.shape[1])),
                up.new_zeros((count, len(up), rank)),
            )
            for number, (down, up) in self.pairs.items():
                known[0][number, : len(down)] = down
                known[1][number, :, : len(down)] = up
            self._stacked = known
        return known


def add_lora(out: Tensor, x: Tensor, bank: LoraBank, groups: LoraGroups) -> Tensor:
    """out [T, outputs] with scale * up(down(x [T, inputs])) of each token's adapter added, in
    place."""
    for adapter, rows in groups.rows:
        pair = bank.pairs.get(adapter)
        if pair is None:
            continue
        down, up = pair
        hidden = x[rows] @ down.t()
        hidden *= groups.scales[rows, None].to(hidden.dtype)
        if isinstance(rows, slice) and out.dtype == hidden.dtype:
            out[rows].addmm_(hidden, up.t())
        elif isinstance(rows, slice):
            out[rows] += hidden @ up.t()
        else:
            out.index_add_(0, rows, (hidden @ up.t()).to(out.dtype))
    return out


def add_gains(
    out: Tensor,
    bank: LoraBank,
    uses: Iterable[tuple[int, Rows, Tensor | float]],
    bias: Tensor | None,
) -> Tensor:
    """out [T, outputs], a map's product with bias, in place, with scale * gain * the product added
    for each use of an adapter that has gains (DoRA). uses: adapter, tokens and scale, or one for
    each. Before add_lora, so that no adapter multiplies what another has added."""
    product = None
    for adapter, rows, scale in uses:
        if (gain := bank.gains.get(adapter)) is None:
            continue
        if product is None:
            product = out.clone() if bias is None else out - bias
        out[rows] += (product[rows] * (scale * gain)).to(out.dtype)
    return out


def group_tokens(adapters: Tensor, scales: Tensor, device: Any) -> LoraGroups:
    """The groups on device of tokens of which each has the adapter of that number, -1: none.
    adapters int64 [T] and scales float32 [T] are the host's."""
    order = adapters.argsort(stable=True)[int((adapters < 0).sum()) :]
    whose = adapters[order]
    starts = torch.searchsorted(whose, torch.arange(int(adapters.max()) + 2))
    rows: list[tuple[int, Rows]] = []
    for number in whose.unique().tolist():
        of_it = order[int(starts[number]) : int(starts[number + 1])]
        first, last = int(of_it[0]), int(of_it[-1])
        together = last - first + 1 == len(of_it)
        rows.append((number, slice(first, last + 1) if together else of_it.to(device)))
    return LoraGroups(order.to(device), starts.to(device), scales.to(device), rows)
