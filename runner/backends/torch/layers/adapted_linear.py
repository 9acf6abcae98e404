"""Linear maps with what LoRA adapters (Hu et al., 2021) add to them, each token's own.

Quantized weights stay so, and no second copy of a large matrix is made. Knows no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kernels import ops
from kernels.lora.naive import LoraBank, LoraGroups
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
    native: the adapters where hearth's kernels compute what they add; None: bank has them."""

    base: Linear
    parts: Sequence[tuple[str, int]]
    inputs: int
    acting: ActingAdapters
    native: TorchLora | None = None
    bank: LoraBank = field(default_factory=LoraBank)

    def __call__(self, x: Tensor) -> Tensor:
        out = self.base(x)
        if self.native is not None:
            acts = self.native and len(self.acting.native)
            return self.native.add(out, x, self.acting.native) if acts else out
        pairs = self.bank.pairs
        if not pairs:
            return out
        for groups in self.acting.groups:
            out = ops.add_lora(out, x, self.bank, groups)
        for number, scale in self.acting.everywhere:
            if number in pairs:
                down, up = pairs[number]
                out = out + ((x @ down.t()) @ up.t() * scale).to(out.dtype)
        return out


def base_of(linear: Linear) -> Linear:
    """The map as the model has it."""
    return linear.base if isinstance(linear, AdaptedLinear) else linear
