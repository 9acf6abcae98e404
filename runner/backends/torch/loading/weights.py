"""The weights of a checkpoint by their names, taken one by one to the device.

Owns what is checked on the way: that each tensor is there, has the shape that the config makes it
and was asked for. Where the bytes come from is a WeightSource's matter, how quantized weights are
stored quantization.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernels.native.linear import Q8_0, TorchKernels
from kernels.quant.gguf import GgufWeight
from kernels.quant.packed import PackedWeight
from registry.errors import shown, shown_names
from runner.backends.torch.layers.blocked_linear import BlockedLinear, can_block, to_blocked
from runner.backends.torch.layers.linear import (
    Bfloat16Linear,
    ConcatenatedLinear,
    DenseLinear,
    Linear,
    RmsNorm,
    TokenEmbedding,
    TransposedLinear,
)
from runner.backends.torch.layers.native_linear import (
    NativeLinear,
    WeightRows,
    create_matrices,
    native_kernels,
    native_linear,
    packed_rows,
)
from runner.backends.torch.layers.packed_linear import (
    OutlierLinear,
    Outliers,
    in_dtype,
    join_packed,
)
from runner.backends.torch.loading import quantization as quantizations
from runner.backends.torch.loading.adapters import LoraAdapters
from runner.backends.torch.loading.rounding import is_rounded, round_map
from runner.backends.torch.loading.weight_source import MatrixPart, WeightSource
from runner.backends.torch.parallel.communication import NO_RANKS, Ranks
from runner.errors import ModelLoadFailed

Tensor = Any
_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_MAX_BLOCKED_HEAD = 1 << 24  # weights
_UNUSED = (
    ".rotary_emb.inv_freq",
    ".masked_bias",
    ".position_ids",
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
)


@dataclass(frozen=True, slots=True)
class WeightPlacement:
    """Where weights go, in which floating type computation runs; max_tokens: of a sequence.

    packed: quantized weights stay so; unpacking them at each step is cheap on a GPU, which waits
    for memory, and dear on a CPU. narrow: linear maps multiply in bfloat16, but that to logits;
    all else is in dtype. native: by hearth's own kernels, where they were compiled; mapped: which
    use the file's own pages. quantize: what the maps of layers become, which are floats.
    ranks: this process's place among those that have the model.
    """

    dtype: Any
    device: Any
    max_tokens: int
    packed: bool = False
    narrow: bool = False
    native: bool = True
    mapped: bool = True
    quantize: str | None = None
    ranks: Ranks = NO_RANKS

    @property
    def weights_dtype(self) -> Any:
        """The type of matrices."""
        return torch.bfloat16 if self.narrow else self.dtype


class WeightLoader:
    """What a model takes its layers from. finish says what is left over."""

    def __init__(
        self,
        source: WeightSource,
        placement: WeightPlacement,
        quantization: Mapping[str, Any] | None = None,
        progress: Callable[[float], None] | None = None,
        adapters: LoraAdapters | None = None,
    ) -> None:
        """progress: told the share of tensors that have been taken. Raises ModelLoadFailed for a
        quantization that is not known."""
        if quantization is not None:
            quantizations.check_quantization(quantization)
        self.placement = placement
        self.quantization = quantization
        self._source = source
        self._progress = progress
        self._adapters = adapters
        self._kernels = (
            native_kernels(placement.dtype, placement.device) if placement.native else None
        )
        sample = torch.empty((1, 1), dtype=placement.weights_dtype, device=placement.device)
        wide = placement.device.type == "cpu" and placement.weights_dtype == torch.float32
        self._blocks = placement.weights_dtype == torch.bfloat16 and can_block(sample)
        self._rearranges = self._blocks or wide  # weights get another layout than the file's
        self._buffer: Tensor | None = None
        self._used: set[str] = set()
        self._ignored: tuple[str, ...] = ()

    def ignore(self, *prefixes: str) -> None:
        """Tensors whose names begin so are of no use to the model; finish lets them be."""
        self._ignored += prefixes

    def has(self, name: str) -> bool:
        """The checkpoint has this tensor."""
        return name in self._source.names

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor. Raises ModelLoadFailed when it is missing."""
        self._check_present(name)
        return self._source.shape(name)

    def tensor(self, name: str, *shape: int) -> Tensor:
        """The tensor on the device, in the computation's type. Raises ModelLoadFailed when it is
        missing or has another shape."""
        return self._floats(name, shape).to(
            device=self.placement.device, dtype=self.placement.dtype, copy=True
        )

    def stored(self, name: str, *shape: int, dtype: Any = None) -> Tensor:
        """The tensor on the device in the type it is stored in. Raises as tensor does, and when
        dtype is another type."""
        tensor = self._take(name, shape)
        if dtype is not None and tensor.dtype != dtype:
            raise ModelLoadFailed(
                f"tensor {shown(name)} is {tensor.dtype}, its quantization makes it {dtype}"
            )
        return tensor.to(device=self.placement.device, copy=True)

    def kept(self, name: str, *shape: int) -> Tensor:
        """The floats where they lie, in the type they are stored in. Raises as tensor does."""
        return self._floats(name, shape, keep=True)

    def linear(
        self, name: str, inputs: int, outputs: int, *, bias: bool = False, fixed: bool = False
    ) -> Linear:
        """The map called name, without ".weight". fixed: see stacked. Raises ModelLoadFailed."""
        return self.stacked([(name, outputs)], inputs, bias=bias, fixed=fixed)

    def stacked(
        self,
        parts: Sequence[tuple[str, int]],
        inputs: int,
        *,
        bias: bool = False,
        fixed: bool = False,
    ) -> Linear:
        """Maps (name, outputs) of the same inputs as one: queries, keys and values; gate and up.
        fixed: no adapter can change it. Raises ModelLoadFailed."""
        base = self._stacked(parts, inputs, bias=bias)
        if fixed or self._adapters is None:
            return base
        biases = [self._bias(name, outputs, bias) for name, outputs in parts]
        return self._adapters.adaptable(
            base, parts, inputs, bias=torch.cat(biases) if bias else None
        )

    def _stacked(self, parts: Sequence[tuple[str, int]], inputs: int, *, bias: bool) -> Linear:
        if self.placement.quantize is not None and all(is_rounded(name) for name, _ in parts):
            return self._rounded(self.placement.quantize, parts, inputs, bias=bias)
        dtype = self.placement.dtype
        if self.placement.packed:
            found = [self._packed(name, inputs, outputs) for name, outputs in parts]
            packed = [in_dtype(weight, dtype) for weight in found if weight is not None]
            if len(packed) == len(parts):
                biases = [self._bias(name, outputs, bias) for name, outputs in parts]
                return join_packed(packed, biases)
            if packed:
                alone = [self._stacked([part], inputs, bias=bias) for part in parts]
                return ConcatenatedLinear(alone)
        return self._dense(parts, inputs, bias=bias)

    def embedding(
        self, name: str, vocabulary: int, hidden: int, scale: float | None = None
    ) -> TokenEmbedding:
        """The rows of tokens, called name, without ".weight"; scale is rounded to the
        computation's type. Raises ModelLoadFailed."""
        if self._kernels is not None:
            rows = self._rows(name, hidden, vocabulary, self.placement.dtype)
            rounded = (
                None if scale is None else float(torch.tensor(scale, dtype=self.placement.dtype))
            )
            return TokenEmbedding(rows.weight, rounded, self.placement.dtype, rows.kind)
        weight = self._floats(f"{name}.weight", (vocabulary, hidden))
        if weight.dtype != self.placement.dtype or self.placement.device.type != "cpu":
            weight = weight.to(device=self.placement.device, dtype=self.placement.dtype, copy=True)
        rounded = None if scale is None else float(torch.tensor(scale, dtype=weight.dtype))
        return TokenEmbedding(weight, rounded)

    def head(self, name: str, hidden: int, vocabulary: int, tied: TokenEmbedding | None) -> Linear:
        """The map to logits: the rows of the embedding that it is tied to, if it is. Never in a
        narrower type than the computation's, in which close logits could become the same."""
        if tied is not None and self.has(f"{name}.weight"):
            self._mark_used(f"{name}.weight")
        if self._kernels is not None:
            if tied is None:
                rows = self._rows(name, hidden, vocabulary, self.placement.dtype)
            else:
                rows = WeightRows(tied.weight, tied.kind)
            narrow = self.placement.dtype == torch.bfloat16
            matrices = create_matrices(self._kernels, [rows])
            plain = NativeLinear(matrices, narrow=narrow, dtype=torch.float32)
            if tied is not None:
                return plain
            return self._adapted(plain, [(name, vocabulary)], hidden)
        if tied is not None:
            return self._head(tied.weight)
        if self.placement.narrow:
            wide = self._head(self.tensor(f"{name}.weight", vocabulary, hidden))
            return self._adapted(wide, [(name, vocabulary)], hidden)
        return self.linear(name, hidden, vocabulary)

    def norm(self, name: str, width: int, epsilon: float, offset: float = 0.0) -> RmsNorm:
        """The norm called name, without ".weight". Raises ModelLoadFailed."""
        return RmsNorm(self.tensor(f"{name}.weight", width), epsilon, offset)

    def check_all_used(self) -> None:
        """Raises ModelLoadFailed when the checkpoint has tensors that nobody asked for: what it
        computes then is something else than the config says."""
        self._buffer = None
        extra = sorted(
            name
            for name in self._source.names
            if name not in self._used and _is_weight(name) and not name.startswith(self._ignored)
        )
        if extra:
            raise ModelLoadFailed(
                f"the checkpoint has {shown_names(extra)}, which its config does not describe"
            )

    def _adapted(self, base: Linear, parts: Sequence[tuple[str, int]], inputs: int) -> Linear:
        """base with what adapters will add to it."""
        adapters = self._adapters
        return base if adapters is None else adapters.adaptable(base, parts, inputs)

    def _rounded(
        self, kind: str, parts: Sequence[tuple[str, int]], inputs: int, *, bias: bool
    ) -> Linear:
        """The maps quantized on the way, one after the other."""
        weights: list[PackedWeight] = []
        outliers, first = [], 0
        for name, outputs in parts:
            part = self._source.part(f"{name}.weight")
            floats = self._view_or_floats(f"{name}.weight", (outputs, inputs), part)
            weight, columns = round_map(name, floats, kind, part)
            if len(columns):
                outliers.append(Outliers(first, columns, floats[:, columns].clone()))
            weights.append(weight)
            first += outputs
        biases = [self._bias(name, outputs, bias) for name, outputs in parts]
        whole = self._joined(weights, biases)
        return OutlierLinear(whole, outliers) if outliers else whole

    def _joined(self, weights: Sequence[PackedWeight], biases: Sequence[Tensor | None]) -> Linear:
        if self._kernels is not None:
            rows = [row for row in map(packed_rows, weights) if row is not None]
            given = [bias for bias in biases if bias is not None]
            if len(rows) == len(weights):
                return native_linear(self._kernels, rows, torch.cat(given) if given else None)
        return join_packed(weights, biases)

    def _dense(self, parts: Sequence[tuple[str, int]], inputs: int, *, bias: bool) -> Linear:
        if self._kernels is not None:
            return self._native(self._kernels, parts, inputs, bias=bias)
        weight = self._gathered(parts, inputs)
        biases = [self._bias(name, outputs, bias) for name, outputs in parts]
        return self._linear_of(weight, torch.cat(biases) if bias else None)

    def _native(
        self, kernels: TorchKernels, parts: Sequence[tuple[str, int]], inputs: int, *, bias: bool
    ) -> Linear:
        max_dtype = self.placement.weights_dtype
        rows = [
            self._rows(name, inputs, outputs, max_dtype, packed=True) for name, outputs in parts
        ]
        biases = [self._bias(name, outputs, bias) for name, outputs in parts]
        added = torch.cat(biases) if bias else None
        return native_linear(kernels, rows, added, narrow=max_dtype == torch.bfloat16)

    def _rows(
        self, name: str, inputs: int, outputs: int, max_dtype: Any, *, packed: bool = False
    ) -> WeightRows:
        """The map's weights as they are stored where kernels multiply them so, in max_dtype where
        they are wider. packed: those of a quantized checkpoint may stay so."""
        if self.quantization is not None:
            found = quantizations.read_packed(self.quantization, self, name, inputs, outputs)
            rows = packed_rows(found) if packed and found is not None else None
            if found is not None:
                return rows or WeightRows(found.dense(max_dtype))
        whole = f"{name}.weight"
        self._check_present(whole)
        self._check_shape(whole, (outputs, inputs))
        mapped = self.placement.mapped
        blocks = self._source.rows(whole, keep=mapped)
        if blocks is not None and blocks[0] == Q8_0:
            self._mark_used(whole)
            return WeightRows(blocks[1] if mapped else blocks[1].clone(), blocks[0])
        weight = self._floats(whole, (outputs, inputs), keep=mapped)
        if weight.itemsize > max_dtype.itemsize:
            return WeightRows(weight.to(max_dtype))
        return WeightRows(weight if mapped else weight.clone())

    def _gathered(self, parts: Sequence[tuple[str, int]], inputs: int) -> Tensor:
        """The parts' weights one below the other. Where they are rearranged next, they lie in the
        file or in memory that the next call uses again: fresh pages cost as much as the copy."""
        placement, rows = self.placement, sum(outputs for _, outputs in parts)
        kind = {"dtype": placement.weights_dtype, "device": placement.device}
        if not self._rearranges:
            weight = torch.empty((rows, inputs), **kind)
        else:
            if len(parts) == 1:
                found = self._unpacked(parts[0][0], inputs, rows)
                return found.to(placement.weights_dtype)
            if self._buffer is None or self._buffer.numel() < rows * inputs:
                self._buffer = torch.empty(rows * inputs, **kind)
            weight = self._buffer[: rows * inputs].view(rows, inputs)
        start = 0
        for name, outputs in parts:
            weight[start : start + outputs].copy_(self._unpacked(name, inputs, outputs))
            start += outputs
        return weight

    def _bias(self, name: str, outputs: int, wanted: bool) -> Tensor | None:
        return self.tensor(f"{name}.bias", outputs) if wanted else None

    def _packed(self, name: str, inputs: int, outputs: int) -> PackedWeight | None:
        if self.quantization is not None:
            return quantizations.read_packed(self.quantization, self, name, inputs, outputs)
        found = self._source.rows(f"{name}.weight") if self.has(f"{name}.weight") else None
        if found is None:
            return None
        self._check_shape(f"{name}.weight", (outputs, inputs))
        self._mark_used(f"{name}.weight")
        return GgufWeight(found[1].to(self.placement.device, copy=True), found[0])

    def _unpacked(self, name: str, inputs: int, outputs: int) -> Tensor:
        """The weights [outputs, inputs] as floats."""
        if self.quantization is not None:
            packed = quantizations.read_packed(self.quantization, self, name, inputs, outputs)
            if packed is not None:
                return packed.dense(self.placement.weights_dtype)
        return self._floats(f"{name}.weight", (outputs, inputs))

    def _head(self, weight: Tensor) -> Linear:
        """Of 150,000 rows of 1,024 in bfloat16, by eight, on two cores: 14 ms from a copy in
        oneDNN's layout, 36 ms from the embedding's own. A large one in float32 has no copy."""
        small = weight.numel() <= _MAX_BLOCKED_HEAD
        if can_block(weight) and (small or weight.dtype == torch.bfloat16):
            return BlockedLinear(to_blocked(weight), dtype=weight.dtype)
        return DenseLinear(weight)

    def _linear_of(self, weight: Tensor, bias: Tensor | None = None) -> Linear:
        if self._blocks:
            return BlockedLinear(to_blocked(weight), bias)
        if self.placement.narrow:
            return Bfloat16Linear(weight, bias)
        if self._rearranges:
            turned = weight.t().clone(memory_format=torch.contiguous_format)
            return TransposedLinear(turned, bias)
        return DenseLinear(weight, bias)

    def _floats(self, name: str, shape: tuple[int, ...], *, keep: bool = False) -> Tensor:
        """As _take. Numbers that stand for others, without what says for which, are refused."""
        return _checked_floats(name, self._take(name, shape, keep=keep))

    def _view_or_floats(self, name: str, shape: tuple[int, ...], part: MatrixPart | None) -> Tensor:
        """As _floats on the device, by the view of a part where it has one."""
        if part is None or part.view is None:
            return self._floats(name, shape).to(self.placement.device)
        self._claim(name, shape)
        return _checked_floats(name, part.view()).to(self.placement.device)

    def _take(self, name: str, shape: tuple[int, ...], *, keep: bool = False) -> Tensor:
        self._claim(name, shape)
        return self._source.read(name, keep=keep)

    def _claim(self, name: str, shape: tuple[int, ...]) -> None:
        self._check_present(name)
        self._check_shape(name, shape)
        self._mark_used(name)

    def _mark_used(self, name: str) -> None:
        self._used.add(name)
        if self._progress is not None:
            self._progress(len(self._used) / max(1, len(self._source.names)))

    def _check_present(self, name: str) -> None:
        if name not in self._source.names:
            raise ModelLoadFailed(
                f"the checkpoint has no tensor {shown(name)}, which its config requires"
            )

    def _check_shape(self, name: str, shape: tuple[int, ...]) -> None:
        found = self._source.shape(name)
        if found != shape:
            raise ModelLoadFailed(
                f"tensor {shown(name)} is {list(found)}, but the config requires {list(shape)}"
            )


def _checked_floats(name: str, tensor: Tensor) -> Tensor:
    if tensor.dtype not in _FLOATS:
        raise ModelLoadFailed(
            f"tensor {shown(name)} is {tensor.dtype}, expected floats: its quantization's"
            " scale is missing, or the config does not say that it is quantized"
        )
    return tensor


def _is_weight(name: str) -> bool:
    return not name.endswith(_UNUSED)
