"""LoRA adapters (Hu et al., 2021): what they add to the linear maps of a model.

Owns the way from an adapter's GGUF file to the two small matrices of each map, which are added
when it is computed: quantized weights stay so, and no second copy of a large matrix is made. Where
a map stands in a model is weights.py's matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from registry.errors import RegistryError, shown
from registry.formats.gguf import GgufHeader, read_header
from runner.backends.torch.layers.linear import Linear
from runner.backends.torch.loading.gguf_names import TensorOrigin, tensor_origins
from runner.backends.torch.loading.gguf_tensors import StoredTensors, read_counts, split_halves
from runner.errors import ModelLoadFailed

Tensor = Any
_SIDES = (".lora_a", ".lora_b")


@dataclass(frozen=True, slots=True)
class LoraPair:
    """up [outputs, rank] times down [rank, inputs], of the adapter of that number."""

    down: Tensor
    up: Tensor
    adapter: int


@dataclass(frozen=True, slots=True)
class LoraLinear(Linear):
    """A map and what adapters add to it: down [inputs, rank], up [rank, outputs], scales [rank]."""

    base: Linear
    down: Tensor
    up: Tensor
    scales: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return torch.addmm(self.base(x), (x @ self.down) * self.scales, self.up)


class AdapterScales:
    """How strongly each adapter acts, in all maps. They change in place: graphs that were recorded
    read them there."""

    def __init__(self, scales: tuple[float, ...]) -> None:
        self._scales = scales
        self._maps: list[tuple[Tensor, Tensor]] = []  # the scales of a map, and whose they are

    def of_map(self, adapters: Sequence[int], dtype: Any, device: Any) -> Tensor:
        """The scales [rank] of a map: adapters says whose each is."""
        whose = torch.tensor(adapters, device=device)
        scales = torch.tensor(self._scales, dtype=dtype, device=device)[whose]
        self._maps.append((scales, whose))
        return scales

    def set(self, given: tuple[float, ...]) -> None:
        """Compute with these from here on."""
        if given == self._scales:
            return
        self._scales = given
        with torch.inference_mode():
            for scales, whose in self._maps:
                scales.copy_(torch.tensor(given, dtype=scales.dtype, device=scales.device)[whose])


class LoraAdapters:
    """The adapters of a model, together."""

    def __init__(self, adapters: Sequence[tuple[str, float]], model: GgufHeader) -> None:
        """adapters: files and the scale of each. Raises ModelLoadFailed for one that is not for
        this model."""
        self.scales = AdapterScales(tuple(scale for _, scale in adapters))
        self._found: dict[str, list[LoraPair]] = {}
        self._unused: dict[str, str] = {}
        for number, (path, _) in enumerate(adapters):
            try:
                self._read(read_header(Path(path)), number, model)
            except RegistryError as error:
                raise ModelLoadFailed(f"the adapter {Path(path).name}: {error}") from error

    def for_linear(self, name: str, inputs: int, outputs: int) -> list[LoraPair]:
        """What is added to the map called name, without ".weight". Raises ModelLoadFailed where
        the shapes are others."""
        found = self._found.get(name, [])
        self._unused.pop(name, None)
        for pair in found:
            if (pair.up.shape[0], pair.down.shape[1]) != (outputs, inputs):
                raise ModelLoadFailed(
                    f"the adapter's matrices for {name} make it"
                    f" {[pair.up.shape[0], pair.down.shape[1]]}, the model's is"
                    f" {[outputs, inputs]}: it was made for another model"
                )
        return found

    def check_all_used(self) -> None:
        """Raises ModelLoadFailed when a map that an adapter changes is not in the model."""
        if self._unused:
            name, file = next(iter(self._unused.items()))
            raise ModelLoadFailed(
                f"the adapter {file} changes {shown(name)}, which is not a linear layer"
                " of this model; the backend llamacpp may apply it"
            )

    def _read(self, header: GgufHeader, number: int, model: GgufHeader) -> None:
        name = header.path.name
        if header.metadata.get("general.type") != "adapter":
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
        for stem, origin in tensor_origins(model.architecture, read_counts(model), targets).items():
            down, up = (_side(stored, origin, side) for side in _SIDES)
            if up.shape[1] != down.shape[0] or not len(down):
                raise ModelLoadFailed(
                    f"the adapter {name}: the matrices for {shown(origin.name)} are"
                    f" {list(down.shape)} and {list(up.shape)}"
                )
            factor = alpha / len(down) if alpha else 1.0
            place = stem.removesuffix(".weight")
            self._found.setdefault(place, []).append(LoraPair(down, up * factor, number))
            self._unused[place] = name


def add_adapters(
    base: Linear,
    parts: Sequence[tuple[int, Sequence[LoraPair]]],
    scales: AdapterScales,
    dtype: Any,
    device: Any,
) -> Linear:
    """base with what is added to its outputs: parts: how many outputs each has, and what is added
    to these. One product for all of them; it has zeros where they do not meet. scales: gets those
    of this map."""
    pairs = [pair for _, found in parts for pair in found]
    if not pairs:
        return base
    outputs, rank = sum(size for size, _ in parts), sum(len(pair.down) for pair in pairs)
    up = torch.zeros((rank, outputs), dtype=torch.float32)
    first, row = 0, 0
    for size, found in parts:
        for pair in found:
            up[row : row + len(pair.down), first : first + size] = pair.up.t()
            row += len(pair.down)
        first += size
    down = torch.cat([pair.down for pair in pairs]).t().contiguous()
    whose = [pair.adapter for pair in pairs for _ in range(len(pair.down))]
    own = scales.of_map(whose, dtype, device)
    return LoraLinear(base, down.to(device, dtype), up.to(device, dtype), own)


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
