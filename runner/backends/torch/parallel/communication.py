"""How the ranks of a model exchange tensors: sums and gathers within a stage, states from stage to
stage.

Owns the process groups of torch.distributed. Knows no layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from runner.backends.torch.parallel.rank_layout import ALONE, RankLayout

Tensor = Any
JOIN_S = 120.0  # for all ranks to be there
# Of one collective. A rank that is gone or hangs is noticed sooner (runner/worker/ranks.py).
_COLLECTIVE_S = 24 * 3600.0


class Communicator(Protocol):
    """What a rank's layers send and get."""

    def sum(self, x: Tensor) -> Tensor:
        """The sum of all x of the stage, in x's memory."""

    def gather(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """On the first rank of the stage, all x [T, sizes[rank]] side by side; on the others x."""

    def send(self, x: Tensor) -> None:
        """Give x to the next stage."""

    def receive(self, x: Tensor) -> Tensor:
        """x, filled with what the stage before sends."""


class DistributedCommunicator(Communicator):
    """By torch.distributed."""

    def __init__(self, layout: RankLayout) -> None:
        """The default group must be there; all ranks make theirs at the same time."""
        self._layout = layout
        groups = [
            dist.new_group(list(layout.stage_ranks(stage))) for stage in range(layout.pipeline)
        ]
        self._group = groups[layout.stage]
        self._first = layout.stage_ranks(layout.stage)[0]

    def sum(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        dist.all_reduce(x, group=self._group)
        return x

    def gather(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        # All parts have one size: a last column is zeros where they differ.
        padded = torch.nn.functional.pad(x, (0, max(sizes) - x.shape[1])).contiguous()
        if self._layout.rank != self._first:
            dist.gather(padded, dst=self._first, group=self._group)
            return x
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.gather(padded, parts, dst=self._first, group=self._group)
        return torch.cat([part[:, :size] for part, size in zip(parts, sizes, strict=True)], dim=1)

    def send(self, x: Tensor) -> None:
        dist.send(x.contiguous(), dst=self._layout.rank - self._layout.tensor)

    def receive(self, x: Tensor) -> Tensor:
        dist.recv(x, src=self._layout.rank + self._layout.tensor)
        return x


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among those that compute a model. communicator: None where it is alone."""

    layout: RankLayout = ALONE
    communicator: Communicator | None = None


def join(layout: RankLayout, store_path: str, device: Any) -> Ranks:
    """Meet the other ranks by a file that all can write, and open what connects them. Raises
    what torch raises, after JOIN_S at the latest."""
    store = dist.FileStore(store_path, layout.ranks)
    store.set_timeout(timedelta(seconds=JOIN_S))
    options: dict[str, Any] = {}
    if device.type == "cuda":
        torch.cuda.set_device(device)
        options["device_id"] = device
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=store,
        rank=layout.rank,
        world_size=layout.ranks,
        timeout=timedelta(seconds=_COLLECTIVE_S),
        **options,
    )
    communicator = DistributedCommunicator(layout)
    dist.barrier()
    return Ranks(layout, communicator)


NO_RANKS = Ranks()
