"""Linear maps with what LoRA adapters (Hu et al., 2021) add to them, each token's own.

Quantized weights stay so, and no second copy of a large matrix is made. Knows no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kernels import ops
from kernels.lora.naive import LoraBank, LoraGroups, add_gains
from kernels.native.lora import no_adapters
from kernels.native.torch_lora import Acting, TorchLora
from runner.backends.torch.layers.linear import Linear

Tensor = Any


@dataclass(slots=True)
class ActingAdapters:
    """Which adapters act in what is computed next, for all maps of a model: groups of its tokens,
    several where a token has more than one adapter. everywhere: on all tokens, however many there
    are, in place of groups. native: all of these, for maps that compute so."""

    groups: Sequence[LoraGroups] = ()
    everywhere: Sequence[tuple[int, float]] = ()
    native: Acting = field(default_factory=no_adapters)


@dataclass(frozen=True, slots=True)
class AdaptedLinear(Linear):
    """A map of a model that adapters may change. parts: what it is made of, names and outputs.
    bias: that base adds. native: the adapters where hearth's kernels compute what they add; None:
    bank has them."""

    base: Linear
    parts: Sequence[tuple[str, int]]
    inputs: int
    acting: ActingAdapters
    bias: Tensor | None = None
    native: TorchLora | None = None
    bank: LoraBank = field(default_factory=LoraBank)

    def __call__(self, x: Tensor) -> Tensor:
        out = self.base(x)
        if self.native is not None:
            return self._add_native(self.native, out, x)
        pairs = self.bank.pairs
        if not pairs:
            return out
        acting = self.acting
        if self.bank.gains:
            uses = [
                (number, rows, groups.scales[rows, None])
                for groups in acting.groups
                for number, rows in groups.rows
            ]
            everywhere = ((number, slice(None), scale) for number, scale in acting.everywhere)
            out = add_gains(out, self.bank, (*uses, *everywhere), self.bias)
        for groups in acting.groups:
            out = ops.add_lora(out, x, self.bank, groups)
        for number, scale in acting.everywhere:
            if number in pairs:
                down, up = pairs[number]
                out = out + ((x @ down.t()) @ up.t() * scale).to(out.dtype)
        return out

    def _add_native(self, native: TorchLora, out: Tensor, x: Tensor) -> Tensor:
        acting = self.acting.native
        if not (native and len(acting)):
            return out
        if self.bias is None or not native.multiplies(acting):
            return native.add(out, x, acting)
        product = native.add(out.float() - self.bias, x, acting)
        return (product + self.bias).to(out.dtype)


def base_of(linear: Linear) -> Linear:
    """The map as the model has it."""
    return linear.base if isinstance(linear, AdaptedLinear) else linear
