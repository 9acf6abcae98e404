"""LoRA adapters of a model on torch: loaded and unloaded beside it, acting on the rows of steps.

Owns the way from an adapter's GGUF file to what is added to each map of the model. Where a map
stands in a model is weights.py's matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from kernels.lora.naive import group_tokens
from kernels.native.lora import ACTING, LoraMatrices
from kernels.native.torch_lora import Acting, TorchLora
from registry.errors import RegistryError, shown
from registry.formats.gguf import GgufHeader, read_header
from registry.formats.gguf.lora import EMBEDDING, GAIN, SIDES
from runner.backends.torch.layers.adapted_linear import ActingAdapters, AdaptedLinear
from runner.backends.torch.layers.linear import Linear
from runner.backends.torch.layers.native_linear import native_kernels
from runner.backends.torch.loading.gguf_names import TensorOrigin, tensor_origins
from runner.backends.torch.loading.gguf_tensors import StoredTensors, read_counts, split_halves
from runner.backends.torch.loading.split_source import WHOLE, SplitSource
from runner.errors import ModelLoadFailed
from runner.types import Adapters

Tensor = Any


@dataclass(frozen=True, slots=True)
class LoraPair:
    """up [outputs, rank] times down [rank, inputs]; gain [outputs]: see LoraMatrices."""

    down: Tensor
    up: Tensor
    gain: Tensor | None = None

    def matrices(self) -> LoraMatrices:
        """As the kernels take them."""
        gain = None if self.gain is None else self.gain.numpy()
        return LoraMatrices(self.down.numpy(), self.up.numpy(), gain)


class _Pass(NamedTuple):
    """The number of an adapter of each token, -1: none, and its scale."""

    numbers: npt.NDArray[np.int64]
    scales: npt.NDArray[np.float32]


class LoraAdapters:
    """The adapters of one model, which may have some at any time."""

    def __init__(
        self,
        model: GgufHeader | None,
        dtype: Any,
        device: Any,
        *,
        native: bool = True,
        narrow: bool = False,
        part: SplitSource | None = None,
    ) -> None:
        """model: its file; None: it can have none. dtype: that it computes in. native: by hearth's
        kernels, where they were compiled; narrow: which may round adapters to float16. part: what
        this process has of the model; None: all."""
        self.acting = ActingAdapters()
        self._model = model
        self._dtype = dtype
        self._device = device
        self._kernels = native_kernels(dtype, device) if native else None
        self._narrow = narrow
        self._part = part
        self._maps: list[AdaptedLinear] = []
        self._numbers: dict[str, int] = {}
        # The adapter of each token of a step and its scale, as often as tokens have adapters
        self._passes: Sequence[_Pass] = ()
        self._step: object = None  # what acting is for; None: something else

    def adaptable(
        self,
        base: Linear,
        parts: Sequence[tuple[str, int]],
        inputs: int,
        *,
        bias: Tensor | None = None,
    ) -> Linear:
        """A map of the model that adapters may change. parts: names, without ".weight", and outputs
        of what it is made of. bias: that base adds."""
        native = None
        if self._kernels is not None:
            outputs = [each for _, each in parts]
            native = TorchLora(self._kernels, outputs, inputs, narrow=self._narrow)
        self._maps.append(AdaptedLinear(base, parts, inputs, self.acting, bias, native))
        return self._maps[-1]

    def load(self, name: str, path: Path) -> None:
        """See Backend.load_adapter."""
        try:
            pairs = self._read(name, read_header(path))
        except RegistryError as error:
            raise ModelLoadFailed(f"the adapter {name}: {error}") from error
        number = next(n for n in range(len(self._numbers) + 1) if n not in self._numbers.values())
        self._put(number, pairs)
        self._numbers[name] = number
        self._step = None

    def _put(self, number: int, pairs: Mapping[str, LoraPair]) -> None:
        for one in self._maps:
            found = [pairs.get(stem) for stem, _ in one.parts]
            if one.native is not None:
                one.native.put(
                    number, [None if pair is None else pair.matrices() for pair in found]
                )
            else:
                of_parts = [(each, pair) for (_, each), pair in zip(one.parts, found, strict=True)]
                one.bank.put(number, self._joined(of_parts), self._joined_gains(of_parts))

    def unload(self, name: str) -> None:
        """See Backend.unload_adapter."""
        number = self._numbers.pop(name)
        self._step = None
        for one in self._maps:
            if one.native is not None:
                one.native.remove(number)
            else:
                one.bank.put(number, None)

    def act_everywhere(self, adapters: Adapters) -> None:
        """In all that is computed from here on these act, on all tokens."""
        self._step, self._passes = None, ()
        found = [(self._numbers[name], scale) for name, scale in adapters]
        self.acting.groups = ()
        self.acting.everywhere = found
        self.acting.native = np.array([(-1, *each) for each in sorted(found)], ACTING)

    def act(self, adapters: Sequence[Adapters], counts: Sequence[int]) -> bool:
        """The next step is that of rows with these adapters, of so many tokens each; none: no row
        has any. False: no adapter acts."""
        first = adapters[0] if adapters else ()
        if all(each == first for each in adapters):
            self.act_everywhere(first)
            return bool(first)
        step = list(adapters), list(counts)
        if step != self._step:
            most = max(map(len, adapters))
            self._passes = [self._pass(adapters, counts, at) for at in range(most)]
            self.acting.everywhere = ()
            self._act_in(self._passes)
            self._step = step
        return True

    def act_on(self, tokens: Sequence[int]) -> None:
        """What is computed next is of these tokens of the step only."""
        if self._passes:
            places = np.array(tokens)
            self._act_in(
                [_Pass(each.numbers[places], each.scales[places]) for each in self._passes]
            )
            self._step = None

    def _pass(self, adapters: Sequence[Adapters], counts: Sequence[int], at: int) -> _Pass:
        given = [each[at] if at < len(each) else None for each in adapters]
        numbers = [-1 if each is None else self._numbers[each[0]] for each in given]
        scales = np.array([0.0 if each is None else each[1] for each in given], np.float32)
        return _Pass(np.repeat(np.array(numbers), counts), np.repeat(scales, counts))

    def _act_in(self, passes: Sequence[_Pass]) -> None:
        """On the tokens of passes."""
        if self._kernels is not None:
            self.acting.native = _acting(passes)
        else:
            self.acting.groups = [
                group_tokens(
                    torch.from_numpy(each.numbers), torch.from_numpy(each.scales), self._device
                )
                for each in passes
            ]

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

    def _joined_gains(self, parts: Sequence[tuple[int, LoraPair | None]]) -> Tensor | None:
        """Of a map of parts, with zeros where there are none."""
        gains = [None if pair is None else pair.gain for _, pair in parts]
        if all(gain is None for gain in gains):
            return None
        whole = [
            torch.zeros(size) if gain is None else gain
            for (size, _), gain in zip(parts, gains, strict=True)
        ]
        return torch.cat(whole).to(self._device)

    def _read(self, name: str, header: GgufHeader) -> Mapping[str, LoraPair]:
        """What an adapter adds to each map that is here."""
        model = self._model
        if header.metadata.get("general.type") != "adapter" or model is None:
            raise ModelLoadFailed(f"{name} is not an adapter")
        if header.architecture != model.architecture:
            raise ModelLoadFailed(
                f"the adapter {name} is for the architecture {shown(header.architecture)}, the"
                f" model is {model.architecture}"
            )
        targets = {tensor.name.removesuffix(SIDES[0]) for tensor in header.tensors}
        targets = {target for target in targets if not target.endswith((SIDES[1], GAIN))}
        stored = StoredTensors(header)
        alpha = header.metadata.get("adapter.lora.alpha")
        alpha = float(alpha) if isinstance(alpha, int | float) else 0.0
        known = {stem: (outputs, one.inputs) for one in self._maps for stem, outputs in one.parts}
        found = {}
        for tensor, origin in tensor_origins(
            model.architecture, read_counts(model), targets
        ).items():
            stem = tensor.removesuffix(".weight")
            if stem in known and origin.name != EMBEDDING:
                found[stem] = self._pair(name, stem, stored, origin, alpha, known[stem])
            elif stem in known or self._part is None or self._part.is_own(tensor):
                raise ModelLoadFailed(
                    f"the adapter {name} changes {shown(stem)}, which is not a linear"
                    " layer of this model that the backend torch adapts; the backend llamacpp may"
                    " apply it"
                )
        return found

    def _pair(
        self,
        name: str,
        stem: str,
        stored: StoredTensors,
        origin: TensorOrigin,
        alpha: float,
        here: tuple[int, int],
    ) -> LoraPair:
        """What an adapter adds to a map of which outputs and inputs are here."""
        down, up = (_side(stored, origin, side) for side in SIDES)
        rank = len(down)
        if up.shape[1] != rank or not rank:
            raise ModelLoadFailed(
                f"the adapter {name}: the matrices for {shown(origin.name)} are"
                f" {list(down.shape)} and {list(up.shape)}"
            )
        split = WHOLE if self._part is None else self._part.split_of(stem)
        wanted, shape = split.whole(*here), (up.shape[0], down.shape[1])
        if shape != wanted:
            raise ModelLoadFailed(
                f"the adapter's matrices for {stem} make it {list(shape)}, the model's is"
                f" {list(wanted)}: it was made for another model"
            )
        gain = _gain(stored, origin, len(up))
        return LoraPair(
            split.own_inputs(down).to(torch.float32, copy=True),
            split.own_outputs(up).float() * (alpha / rank if alpha else 1.0),
            None if gain is None else split.own_outputs(gain).to(torch.float32, copy=True),
        )


def _acting(passes: Sequence[_Pass]) -> Acting:
    """All that acts, by adapter."""
    parts = []
    for each in passes:
        columns = np.flatnonzero(each.numbers >= 0)
        part = np.empty(len(columns), ACTING)
        part["column"] = columns
        part["adapter"], part["scale"] = each.numbers[columns], each.scales[columns]
        parts.append(part)
    acting = np.concatenate(parts)
    return acting[np.argsort(acting["adapter"], kind="stable")]


def _side(stored: StoredTensors, origin: TensorOrigin, side: str) -> Tensor:
    """One of the two matrices as floats, its rows as Hugging Face has them."""
    name = origin.name + side
    if not stored.has(name):
        raise ModelLoadFailed(f"the adapter has no tensor {shown(name)}")
    values = stored.floats(name, origin.expert)
    if values.ndim != 2:
        raise ModelLoadFailed(f"the adapter's tensor {shown(name)} is {list(values.shape)}")
    if origin.heads is not None and side == SIDES[1]:
        values = split_halves(values, origin.heads)
    return values


def _gain(stored: StoredTensors, origin: TensorOrigin, rows: int) -> Tensor | None:
    """As floats, in the order of Hugging Face; None where there is none."""
    name = origin.name + GAIN
    if not stored.has(name):
        return None
    values = stored.floats(name, None)
    if values.shape != (rows,) or origin.expert is not None or not values.isfinite().all():
        raise ModelLoadFailed(
            f"the adapter's tensor {shown(name)} is {list(values.shape)}, expected {rows} finite"
            " numbers"
        )
    return values if origin.heads is None else split_halves(values, origin.heads)
