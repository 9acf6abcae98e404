"""LoRA adapters of a model on torch: loaded and unloaded beside it, acting on the rows of steps.

Owns the way from an adapter's GGUF file to what is added to each map of the model. Where a map
stands in a model is weights.py's matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernels.lora.naive import LoraGroups, group_tokens
from registry.errors import RegistryError, shown
from registry.formats.gguf import GgufHeader, read_header
from runner.backends.backend import Row
from runner.backends.torch.layers.adapted_linear import ActingAdapters, AdaptedLinear
from runner.backends.torch.layers.linear import Linear
from runner.backends.torch.loading.gguf_names import TensorOrigin, tensor_origins
from runner.backends.torch.loading.gguf_tensors import StoredTensors, read_counts, split_halves
from runner.errors import ModelLoadFailed
from runner.types import Adapters

Tensor = Any
_SIDES = (".lora_a", ".lora_b")


@dataclass(frozen=True, slots=True)
class LoraPair:
    """up [outputs, rank] times down [rank, inputs]."""

    down: Tensor
    up: Tensor


class LoraAdapters:
    """The adapters of one model, which may have some at any time."""

    def __init__(self, model: GgufHeader | None, dtype: Any, device: Any) -> None:
        """model: its file; None: it can have none. dtype: that it computes in."""
        self.acting = ActingAdapters()
        self._model = model
        self._dtype = dtype
        self._device = device
        self._maps: list[AdaptedLinear] = []
        self._numbers: dict[str, int] = {}
        # The adapter of each token of a step and its scale, as often as tokens have adapters
        self._passes: Sequence[tuple[Tensor, Tensor]] = ()

    def adaptable(self, base: Linear, parts: Sequence[tuple[str, int]], inputs: int) -> Linear:
        """A map of the model that adapters may change. parts: names, without ".weight", and outputs
        of what it is made of."""
        self._maps.append(AdaptedLinear(base, parts, inputs, self.acting))
        return self._maps[-1]

    def load(self, name: str, path: Path) -> None:
        """See Backend.load_adapter."""
        try:
            pairs = self._read(name, read_header(path))
        except RegistryError as error:
            raise ModelLoadFailed(f"the adapter {name}: {error}") from error
        known = {stem: (outputs, one.inputs) for one in self._maps for stem, outputs in one.parts}
        for stem, pair in pairs.items():
            if stem in known:
                _check_shape(stem, pair, known[stem])
                continue
            raise ModelLoadFailed(
                f"the adapter {name} changes {shown(stem)}, which is not a linear"
                " layer of this model that the backend torch adapts; the backend llamacpp may"
                " apply it"
            )
        number = next(n for n in range(len(self._numbers) + 1) if n not in self._numbers.values())
        for one in self._maps:
            parts = [(outputs, pairs.get(stem)) for stem, outputs in one.parts]
            one.bank.put(number, self._joined(parts))
        self._numbers[name] = number

    def unload(self, name: str) -> None:
        """See Backend.unload_adapter."""
        number = self._numbers.pop(name)
        for one in self._maps:
            one.bank.put(number, None)

    def act_everywhere(self, adapters: Adapters) -> None:
        """In all that is computed from here on these act, on all tokens."""
        self._passes = ()
        self.acting.groups = ()
        self.acting.everywhere = [(self._numbers[name], scale) for name, scale in adapters]

    def act(self, rows: Sequence[Row], counts: Sequence[int]) -> bool:
        """The next step is that of rows, of so many tokens each. False: no adapter acts."""
        first = rows[0].adapters
        if all(row.adapters == first for row in rows):
            self.act_everywhere(first)
            return bool(first)
        tokens, most = torch.tensor(counts), max(len(row.adapters) for row in rows)
        passes = []
        for at in range(most):
            given = [row.adapters[at] if at < len(row.adapters) else None for row in rows]
            numbers = [-1 if each is None else self._numbers[each[0]] for each in given]
            scales = [0.0 if each is None else each[1] for each in given]
            whose = torch.tensor(numbers).repeat_interleave(tokens)
            passes.append((whose, torch.tensor(scales).repeat_interleave(tokens)))
        self._passes = passes
        self.acting.everywhere = ()
        self.acting.groups = self._grouped(self._passes)
        return True

    def act_on(self, tokens: Sequence[int]) -> None:
        """What is computed next is of these tokens of the step only."""
        if self._passes:
            places = torch.tensor(tokens)
            chosen = [(whose[places], scales[places]) for whose, scales in self._passes]
            self.acting.groups = self._grouped(chosen)

    def _grouped(self, passes: Sequence[tuple[Tensor, Tensor]]) -> Sequence[LoraGroups]:
        return [group_tokens(whose, scales, self._device) for whose, scales in passes]

    def _joined(self, parts: Sequence[tuple[int, LoraPair | None]]) -> tuple[Tensor, Tensor] | None:
        """What is added to a map of parts, as one product: with zeros where they do not meet."""
        pairs = [pair for _, pair in parts if pair is not None]
        if not pairs:
            return None
        outputs, rank = sum(size for size, _ in parts), sum(len(pair.down) for pair in pairs)
        up = torch.zeros((outputs, rank), dtype=torch.float32)
        first, column = 0, 0
        for size, pair in parts:
            if pair is not None:
                end = column + len(pair.down)
                up[first : first + size, column:end] = pair.up
                column = end
            first += size
        down = torch.cat([pair.down for pair in pairs])
        return down.to(self._device, self._dtype), up.to(self._device, self._dtype)

    def _read(self, name: str, header: GgufHeader) -> Mapping[str, LoraPair]:
        """What an adapter adds to each map."""
        model = self._model
        if header.metadata.get("general.type") != "adapter" or model is None:
            raise ModelLoadFailed(f"{name} is not an adapter")
        if header.architecture != model.architecture:
            raise ModelLoadFailed(
                f"the adapter {name} is for the architecture {shown(header.architecture)}, the"
                f" model is {model.architecture}"
            )
        targets = {tensor.name.removesuffix(_SIDES[0]) for tensor in header.tensors}
        targets = {target for target in targets if not target.endswith(_SIDES[1])}
        stored = StoredTensors(header)
        alpha = header.metadata.get("adapter.lora.alpha")
        alpha = float(alpha) if isinstance(alpha, int | float) else 0.0
        found = {}
        for stem, origin in tensor_origins(model.architecture, read_counts(model), targets).items():
            down, up = (_side(stored, origin, side) for side in _SIDES)
            if up.shape[1] != down.shape[0] or not len(down):
                raise ModelLoadFailed(
                    f"the adapter {name}: the matrices for {shown(origin.name)} are"
                    f" {list(down.shape)} and {list(up.shape)}"
                )
            factor = alpha / len(down) if alpha else 1.0
            found[stem.removesuffix(".weight")] = LoraPair(down, up * factor)
        return found


def _check_shape(name: str, pair: LoraPair, wanted: tuple[int, int]) -> None:
    found = pair.up.shape[0], pair.down.shape[1]
    if found != wanted:
        raise ModelLoadFailed(
            f"the adapter's matrices for {name} make it {list(found)}, the model's is"
            f" {list(wanted)}: it was made for another model"
        )


def _side(stored: StoredTensors, origin: TensorOrigin, side: str) -> Tensor:
    """One of the two matrices in float32, its rows as Hugging Face has them."""
    name = origin.name + side
    if not stored.has(name):
        raise ModelLoadFailed(f"the adapter has no tensor {shown(name)}")
    values = stored.floats(name, origin.expert).float()
    if values.ndim != 2:
        raise ModelLoadFailed(f"the adapter's tensor {shown(name)} is {list(values.shape)}")
    if origin.heads is not None and side == _SIDES[1]:
        values = split_halves(values, origin.heads)
    return values.clone()
