"""The tensors of a checkpoint as one of several ranks has them: those of its layers and experts,
and of maps that are split the rows or columns that are its own.

Owns which maps are split how, by their names, and what of it the tensors of each quantization hold.
A map's outputs are split where the next map's inputs are (Megatron-LM), so that ranks meet once
for each pair. Knows no formats of files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import lcm
from types import MappingProxyType
from typing import Any, Final

import torch

from registry.errors import shown
from runner.backends.torch.config import ModelConfig
from runner.backends.torch.loading.rounding import is_rounded
from runner.backends.torch.loading.weight_source import Cut, MatrixPart, WeightSource
from runner.backends.torch.parallel.rank_layout import RankLayout
from runner.errors import ModelLoadFailed

Tensor = Any
EMBEDDING, HEAD, NORM = "model.embed_tokens", "lm_head", "model.norm"
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_EXPERT = re.compile(r".*\.experts\.(\d+)\..+")
_STACKS = "mlp.experts"  # of all experts of a layer, in one tensor each
# Of the tensors of a map, the dimensions of outputs and inputs
_DIMENSIONS: Final[Mapping[str, tuple[int | None, int | None]]] = MappingProxyType(
    {
        "weight": (0, 1),
        "bias": (0, None),
        "qweight": (1, 0),
        "qzeros": (1, 0),
        "scales": (1, 0),
        "g_idx": (None, 0),
        "weight_packed": (0, 1),
        "weight_scale": (0, 1),
        "weight_scale_inv": (0, 1),
        "weight_zero_point": (0, 1),
        "weight_g_idx": (None, 0),
    }
)
_FP8_BLOCK = 128
_PIECE_WEIGHTS = 1 << 23  # 16 MiB and more: smaller ones would stay in memory, see MappedFiles
_SCALES = MappingProxyType({"g_idx": ("scales", 0), "weight_g_idx": ("weight_scale", 1)})


@dataclass(frozen=True, slots=True)
class Section:
    """Of size values of a dimension, those in own."""

    size: int
    own: range


@dataclass(frozen=True, slots=True)
class MapSplit:
    """What a rank has of a map: some of its outputs, which may lie in several sections one behind
    the other, or some of its inputs."""

    outputs: tuple[Section, ...] = ()
    inputs: Section | None = None

    def whole(self, outputs: int, inputs: int) -> tuple[int, int]:
        """The sizes of the map, of which the rank has outputs and inputs."""
        if self.inputs is not None:
            return outputs, self.inputs.size
        return sum(section.size for section in self.outputs) or outputs, inputs

    def own_outputs(self, values: Tensor) -> Tensor:
        """Of values of the map's outputs [outputs, ...], the rank's."""
        if not self.outputs:
            return values
        sizes = [section.size for section in self.outputs]
        parts = zip(self.outputs, values.split(sizes), strict=True)
        return torch.cat([part[each.own.start : each.own.stop] for each, part in parts])

    def own_inputs(self, values: Tensor) -> Tensor:
        """Of values of the map's inputs [..., inputs], the rank's."""
        own = self.inputs
        return values if own is None else values[..., own.own.start : own.own.stop]


WHOLE = MapSplit()


class SplitSource(WeightSource):
    """What source has for one rank of a layout."""

    def __init__(
        self, source: WeightSource, config: ModelConfig, layout: RankLayout, group: int = 1
    ) -> None:
        """group: so many weights of a row are quantized together once they are read. Raises
        ModelLoadFailed for tensors that cannot be split so, with numbers; reads none but the order
        of columns."""
        self._source = source
        self._group = group
        self._layout = layout
        self._shape = config.shape
        self._maps = _splits(config, layout)
        self.names: Collection[str] = [name for name in source.names if self.is_own(name)]
        for name in self.names:
            self.shape(name)
            if name.rpartition(".")[2] in _SCALES:
                self.read(name)

    def split_of(self, name: str) -> MapSplit:
        """How the map called name, without ".weight", is split."""
        return self._maps.get(_in_layer(name), WHOLE)

    def shape(self, name: str) -> tuple[int, ...]:
        whole = self._source.shape(name)
        cuts = self._cuts_of(name)
        if not cuts:
            return whole
        at = cuts[0].dimension
        return (*whole[:at], sum(cut.stop - cut.start for cut in cuts), *whole[at + 1 :])

    def read(self, name: str, *, keep: bool = False, cut: Cut | None = None) -> Tensor:
        assert cut is None, "a part is not split again"
        stem, _, kind = name.rpartition(".")
        if kind == "bias" and self.split_of(stem).inputs is not None and self._layout.tensor_rank:
            return torch.zeros(self._source.shape(name))  # it is added once
        cuts = self._cuts_of(name)
        if not cuts:
            return self._source.read(name, keep=keep)
        if len(cuts) > 1:
            parts = [self._source.read(name, cut=each).clone() for each in cuts]
            return torch.cat(parts, dim=cuts[0].dimension)
        found = self._source.read(name, keep=keep, cut=cuts[0])
        return self._own_groups(name, found, cuts[0]) if kind in _SCALES else found

    def rows(
        self, name: str, *, keep: bool = False, cut: Cut | None = None
    ) -> tuple[str, Tensor] | None:
        assert cut is None, "a part is not split again"
        cuts = self._cuts_of(name)
        if len(cuts) <= 1:
            return self._source.rows(name, keep=keep, cut=cuts[0] if cuts else None)
        found = []
        for each in cuts:
            part = self._source.rows(name, cut=each)
            if part is None:
                return None
            found.append((part[0], part[1].clone()))
        return found[0][0], torch.cat([rows for _, rows in found])

    def block(self, name: str) -> int:
        return self._source.block(name)

    def part(self, name: str) -> MatrixPart | None:
        if not self._cuts_of(name):
            return None
        pieces = partial(self._pieces, name)
        own = self.split_of(name.rpartition(".")[0]).inputs
        if own is None:
            return MatrixPart(pieces)
        split = MapSplit(inputs=own)
        return MatrixPart(pieces, own.own, lambda: split.own_inputs(self._source.read(name)))

    def is_own(self, name: str) -> bool:
        """The rank needs this tensor, or nobody does: that is for others to say."""
        layout, shape = self._layout, self._shape
        layer = _LAYER.match(name)
        if layer is not None:
            number, expert = int(layer[1]), _EXPERT.match(name)
            if number < shape.layers and number not in layout.layers(shape.layers):
                return False
            experts = self._maps[_STACKS].outputs
            return expert is None or not experts or int(expert[1]) in experts[0].own
        stem = name.rpartition(".")[0]
        if stem == EMBEDDING:
            return layout.is_first or (layout.is_last and shape.tied)
        return layout.is_last or stem not in (HEAD, NORM)

    def _cuts_of(self, name: str) -> tuple[Cut, ...]:
        """What of the tensor the rank has; none: all of it."""
        stem, _, kind = name.rpartition(".")
        local = _in_layer(stem)
        if local == _STACKS:
            return self._scaled(name, self._maps[_STACKS].outputs, 0)
        if (local, kind) == ("self_attn", "sinks"):
            return self._scaled(name, self._maps.get("self_attn.sinks", WHOLE).outputs, 0)
        split = self._maps.get(local)
        if split is None or kind not in _DIMENSIONS:
            return ()
        of_outputs, of_inputs = _DIMENSIONS[kind]
        if split.inputs is not None:
            return self._scaled(name, (split.inputs,), of_inputs)
        return self._scaled(name, split.outputs, of_outputs)

    def _scaled(
        self, name: str, sections: tuple[Section, ...], dimension: int | None
    ) -> tuple[Cut, ...]:
        """The cuts of a tensor, which may have one number for several values."""
        whole = self._source.shape(name)
        if not sections or dimension is None or dimension >= len(whole) or whole[dimension] == 1:
            return ()
        size, entries = sum(section.size for section in sections), whole[dimension]
        kind = name.rpartition(".")[2]
        if kind == "weight":
            block = self._source.block(name) if dimension else 1
            if dimension and is_rounded(name.removesuffix(".weight")):
                block = lcm(block, self._group)
        else:
            whole_block = kind == "weight_scale_inv" and entries != size
            block = _FP8_BLOCK if whole_block else size // entries
        cuts, first = [], 0
        for section in sections:
            edges = [first + section.own.start, first + section.own.stop]
            if any(edge % block and edge != size for edge in edges):
                raise ModelLoadFailed(
                    f"tensor {shown(name)} has blocks of {block} values, and"
                    f" tensor_parallel={self._layout.tensor} splits {section.size} values into"
                    f" parts of {len(section.own)}, which are no whole blocks; try a smaller"
                    " number, or another quantization"
                )
            unit = 1 if kind == "weight" else block
            cuts.append(Cut(dimension, edges[0] // unit, -(-edges[1] // unit)))
            first += section.size
        return tuple(cuts)

    def _pieces(self, name: str) -> Iterator[Tensor]:
        """All of a matrix, in pieces of as many heads each where its rows may be those of heads."""
        rows, columns = self._source.shape(name)
        count = -(-rows * columns // _PIECE_WEIGHTS)
        if count > 1 and name.endswith(("q_proj.weight", "k_proj.weight")):
            count = self._shape.heads_kv
        edges = [number * rows // count for number in range(count + 1)]
        for start, stop in pairwise(edges):
            yield self._source.read(name, cut=Cut(0, start, stop))

    def _own_groups(self, name: str, groups: Tensor, cut: Cut) -> Tensor:
        """The numbers of the columns' groups among those that the rank has."""
        stem, _, kind = name.rpartition(".")
        sibling, dimension = _SCALES[kind]
        count = self._source.shape(f"{stem}.{sibling}")[dimension]
        columns = self._source.shape(name)[0] // count
        if count == 1:
            return groups
        own = groups - cut.start // columns
        if int(own.min()) < 0 or int(own.max()) >= -(-len(groups) // columns):
            raise ModelLoadFailed(
                f"tensor {shown(name)} has columns in another order than their {count} groups"
                f" (act-order), which {self._layout.tensor} ranks cannot share; create the model"
                " without PARAMETER tensor_parallel"
            )
        return own


def _splits(config: ModelConfig, layout: RankLayout) -> dict[str, MapSplit]:
    """By a map's name in its layer, how it is split; no others are."""
    if layout.tensor == 1:
        return {_STACKS: WHOLE}
    shape, values = config.shape, config.values.values
    heads, keys = layout.part(shape.heads), layout.key_heads(shape.heads_kv)
    query = Section(shape.queries, _scaled_range(heads, shape.head))
    key = Section(shape.keys, _scaled_range(keys, shape.head))
    wide = Section(shape.feed_forward, layout.part(shape.feed_forward))
    words = Section(shape.vocabulary, layout.part(shape.vocabulary))
    experts = values.get("num_local_experts") or values.get("num_experts")
    stack = (Section(experts, layout.part(experts)),) if isinstance(experts, int) else ()
    return {
        "self_attn.q_proj": MapSplit((query,)),
        "self_attn.k_proj": MapSplit((key,)),
        "self_attn.v_proj": MapSplit((key,)),
        "self_attn.qkv_proj": MapSplit((query, key, key)),
        "self_attn.o_proj": MapSplit(inputs=query),
        "self_attn.sinks": MapSplit((Section(shape.heads, heads),)),
        "mlp.gate_proj": MapSplit((wide,)),
        "mlp.up_proj": MapSplit((wide,)),
        "mlp.gate_up_proj": MapSplit((wide, wide)),
        "mlp.down_proj": MapSplit(inputs=wide),
        _STACKS: MapSplit(stack),
        EMBEDDING: MapSplit((words,)),
        HEAD: MapSplit((words,)),
    }


def _scaled_range(given: range, factor: int) -> range:
    return range(given.start * factor, given.stop * factor)


def _in_layer(name: str) -> str:
    """The name without that of its layer."""
    found = _LAYER.match(name)
    return name if found is None else found[2]
