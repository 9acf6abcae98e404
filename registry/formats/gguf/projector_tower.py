"""The transformer of a projector, tensor by tensor: what vision and audio projectors have in
common.

Knows no kind of projector; their rules contain the differences.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from registry.errors import InvalidGguf
from registry.formats.gguf.architectures import check_shape
from registry.formats.gguf.header import GgufHeader

NamedShapes = Iterator[tuple[str, tuple[int, ...]]]


class Tower:
    """A transformer with plain heads and what stands around it. The name of a tensor that may be
    missing ends with a question mark."""

    bias = "?"  # of the queries, keys and values
    may_swap = True  # old files have the matrices of the feed-forward under each other's names

    def __init__(self, header: GgufHeader, modality: Literal["vision", "audio"]) -> None:
        """The keys of the modality must have been checked."""
        values, prefix = header.metadata, f"clip.{modality}."
        self.header = header
        self.tensors = {tensor.name: tensor for tensor in header.tensors}
        self.prefix = modality[0]
        self.block_count: int = values[f"{prefix}block_count"]
        self.width: int = values[f"{prefix}embedding_length"]
        self.ff: int = values[f"{prefix}feed_forward_length"]
        self.projection: int = values[f"{prefix}projection_dim"]

    def run(self) -> None:
        """Check all tensors. Raises InvalidGguf."""
        for name, shape in (*self.ends(), *self.blocks()):
            tensor = self.tensors.get(name.removesuffix("?"))
            if tensor is not None:
                check_shape(tensor, list(shape))
            elif not name.endswith("?"):
                raise InvalidGguf(f"the tensor {name} is missing")

    def ends(self) -> NamedShapes:
        """The tensors before and behind the blocks."""
        return iter(())

    def blocks(self) -> NamedShapes:
        """The tensors of every block."""
        width, ff = self.width, self.ff
        for number in range(self.block_count):
            block = f"{self.prefix}.blk.{number}."
            fused = block + "attn_qkv.weight" in self.tensors
            for part in ("q", "k", "v"):
                yield f"{block}attn_{part}.weight{'?' if fused else ''}", (width, width)
                yield f"{block}attn_{part}.bias{self.bias}", (width,)
            yield f"{block}attn_qkv.weight?", (width, 3 * width)
            yield f"{block}attn_qkv.bias?", (3 * width,)
            yield f"{block}attn_out.weight", (width, width)
            for name in ("attn_out", "ln1", "ln2"):
                yield f"{block}{name}.bias?", (width,)
            for name in ("ln1", "ln2"):
                yield f"{block}{name}.weight", (width,)
            down = self.tensors.get(block + "ffn_down.weight")
            swapped = self.may_swap and down is not None and down.dimensions[0] == width
            up, down_name = ("ffn_down", "ffn_up") if swapped else ("ffn_up", "ffn_down")
            for name, shape in (
                (up, (width, ff)),
                (down_name, (ff, width)),
                ("ffn_gate", (width, ff)),
            ):
                optional = "?" if name == "ffn_gate" else ""
                if ff:
                    yield f"{block}{name}.weight{optional}", shape
                    yield f"{block}{name}.bias?", shape[1:]
