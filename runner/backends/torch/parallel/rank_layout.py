"""What of a model each rank has: a share of every layer's heads, widths and experts, and a run of
the layers. Numbers only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from runner.backends.torch.config import DecoderShape, ModelConfig
from runner.errors import ModelLoadFailed
from runner.parallelism import check_split

_EXPERTS = ("num_local_experts", "num_experts")


@dataclass(frozen=True, slots=True)
class RankLayout:
    """rank: of tensor * pipeline ones. The ranks of a stage are neighbours; the first are those of
    the last stage, so that the logits are where they are sampled."""

    tensor: int = 1
    pipeline: int = 1
    rank: int = 0

    @property
    def ranks(self) -> int:
        """How many there are."""
        return self.tensor * self.pipeline

    @property
    def tensor_rank(self) -> int:
        """Its place among those of its stage."""
        return self.rank % self.tensor

    @property
    def stage(self) -> int:
        """Of the pipeline; 0 has the embedding."""
        return self.pipeline - 1 - self.rank // self.tensor

    @property
    def is_first(self) -> bool:
        """It begins the pipeline."""
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        """It ends the pipeline."""
        return self.stage == self.pipeline - 1

    def stage_ranks(self, stage: int) -> range:
        """The ranks of a stage."""
        first = (self.pipeline - 1 - stage) * self.tensor
        return range(first, first + self.tensor)

    def layers(self, count: int) -> range:
        """This rank's of count layers."""
        return _share(count, self.stage, self.pipeline)

    def part(self, size: int) -> range:
        """This rank's of size rows, columns, heads or experts."""
        return _share(size, self.tensor_rank, self.tensor)

    def parts(self, size: int) -> list[int]:
        """How many of size each rank of the stage has."""
        return [len(_share(size, rank, self.tensor)) for rank in range(self.tensor)]

    def key_heads(self, heads_kv: int) -> range:
        """This rank's key and value heads: one that several ranks have, where there are fewer heads
        than ranks."""
        first = self.part(heads_kv).start
        return range(first, max(first + 1, self.part(heads_kv).stop))

    def local(self, shape: DecoderShape) -> DecoderShape:
        """The sizes of what this rank has of each layer that is split; layers: how many it has."""
        return replace(
            shape,
            layers=len(self.layers(shape.layers)),
            heads=len(self.part(shape.heads)),
            heads_kv=len(self.key_heads(shape.heads_kv)),
            feed_forward=len(self.part(shape.feed_forward)),
        )

    def check(self, config: ModelConfig) -> None:
        """Raises ModelLoadFailed for a model that cannot be split so."""
        shape, values = config.shape, config.values.values
        experts = next((values[name] for name in _EXPERTS if values.get(name)), 0)
        refusal = check_split(
            heads=shape.heads,
            heads_kv=shape.heads_kv,
            layers=shape.layers,
            experts=experts if isinstance(experts, int) else 0,
            tensor=self.tensor,
            pipeline=self.pipeline,
        )
        if refusal is not None:
            raise ModelLoadFailed(refusal)


def _share(size: int, number: int, count: int) -> range:
    """Of size, cut into count parts as equal as can be, the part of this number."""
    return range(number * size // count, (number + 1) * size // count)


ALONE = RankLayout()
