"""How the ranks of a model exchange tensors: sums and gathers within a stage, states from stage to
stage.

Owns the process groups of torch.distributed, and which of a step's tokens each rank has between the
split maps: all, or a part of them, of which it alone computes norms and sums (sequence parallelism:
Korthikanti et al., 2022). Knows no layers.
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
_TCP = "tcp://"
JOIN_S = 120.0  # for all ranks to be there
# Of one collective. A rank that is gone or hangs is noticed sooner (runner/worker/ranks.py).
_COLLECTIVE_S = 24 * 3600.0
# Tokens of each rank from which on a step is shared. To scatter a sum and to gather its parts moves
# as many bytes as to reduce it for all, in twice as many messages, for which a step of few tokens
# waits longer; and the most memory is what the largest step takes.
MIN_ROWS = 32
_MAX_TEXT = 512  # bytes of what a rank says


class Communicator(Protocol):
    """What a rank's layers send and get."""

    def begin(self, tokens: int) -> int:
        """A step of this many tokens T begins. How many rows R this rank has of states [T, n]
        between split maps: all, or its part in their order, zeros after the last token."""

    def sum(self, x: Tensor) -> Tensor:
        """This rank's rows [R, n] of the sum of all x [T, n] of the stage. May write into x."""

    def whole(self, x: Tensor) -> Tensor:
        """All rows [T, n], of which x [R, n] are this rank's."""

    def gather(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """On the first rank of the stage, all x [T, sizes[rank]] side by side; on the others x."""

    def send(self, x: Tensor) -> None:
        """Give x to the next stage."""

    def receive(self, x: Tensor) -> Tensor:
        """x, filled with what the stage before sends."""

    def first_failure(self, own: str | None) -> str | None:
        """What the first of all ranks says that has failed, if one has; own: what this one says,
        which has if it is a text."""


class DistributedCommunicator(Communicator):
    """By torch.distributed."""

    def __init__(self, layout: RankLayout, device: Any) -> None:
        """The default group must be there; all ranks make theirs at the same time."""
        self._layout = layout
        self._device = device
        groups = [
            dist.new_group(list(layout.stage_ranks(stage))) for stage in range(layout.pipeline)
        ]
        self._group = groups[layout.stage]
        self._first = layout.stage_ranks(layout.stage)[0]
        self._scatters_sums = dist.get_backend(self._group) == "nccl"
        self._tokens = self._rows = 0  # of the step

    def begin(self, tokens: int) -> int:
        self._tokens, self._rows = tokens, rows_of(tokens, self._layout.tensor)
        return self._rows

    def sum(self, x: Tensor) -> Tensor:
        if self._rows < self._tokens:
            return self._scattered_sum(x)
        x = x.contiguous()
        dist.all_reduce(x, group=self._group)
        return x

    def whole(self, x: Tensor) -> Tensor:
        if self._rows == self._tokens:
            return x
        rows = x.new_empty((self._layout.tensor * self._rows, x.shape[1]))
        dist.all_gather_single(rows, x.contiguous(), group=self._group)
        return rows[: self._tokens]

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

    def first_failure(self, own: str | None) -> str | None:
        content = (own or "").encode()[:_MAX_TEXT].ljust(_MAX_TEXT, b"\0")
        text = torch.frombuffer(bytearray(content), dtype=torch.uint8).to(self._device)
        texts = text.new_empty(self._layout.ranks * _MAX_TEXT)
        dist.all_gather_single(texts, text)
        found = (bytes(each.tolist()).rstrip(b"\0") for each in texts.cpu().split(_MAX_TEXT))
        return next((each.decode("utf-8", "replace") for each in found if each), None)

    def _scattered_sum(self, x: Tensor) -> Tensor:
        ranks, missing = self._layout.tensor, self._layout.tensor * self._rows - self._tokens
        x = torch.nn.functional.pad(x, (0, 0, 0, missing)) if missing else x.contiguous()
        rows = x.new_empty((self._rows, x.shape[1]))
        if self._scatters_sums:
            dist.reduce_scatter_single(rows, x, group=self._group)
            return rows
        # Gloo's is an all_reduce of a copy: twice these bytes, and the memory that this saves.
        parts, own = x.view(ranks, self._rows, -1), self._layout.tensor_rank
        total = parts[own].clone()
        for distance in range(1, ranks):
            target, source = (own + distance) % ranks, (own - distance) % ranks
            sending = dist.isend(parts[target], group=self._group, group_dst=target)
            dist.recv(rows, group=self._group, group_src=source)
            sending.wait()
            total += rows
        return total


def rows_of(tokens: int, ranks: int) -> int:
    """How many rows each rank has of a step's states between split maps."""
    rows = -(-tokens // ranks)
    return rows if rows >= MIN_ROWS else tokens


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among those that compute a model. communicator: None where it is alone."""

    layout: RankLayout = ALONE
    communicator: Communicator | None = None


def join(layout: RankLayout, store_at: str, device: Any, listener: int | None = None) -> Ranks:
    """Meet the other ranks, and open what connects them. store_at: a file that all can write, or
    tcp://HOST:PORT, where the first rank listens by the descriptor listener, which is taken over.
    Raises what torch raises, after JOIN_S at the latest."""
    store = _store(layout, store_at, listener)
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
    communicator = DistributedCommunicator(layout, device)
    dist.barrier()
    return Ranks(layout, communicator)


def _store(layout: RankLayout, at: str, listener: int | None) -> Any:
    if not at.startswith(_TCP):
        return dist.FileStore(at, layout.ranks)
    host, _, port = at.removeprefix(_TCP).rpartition(":")
    return dist.TCPStore(
        host,
        int(port),
        layout.ranks,
        is_master=listener is not None,
        timeout=timedelta(seconds=JOIN_S),
        wait_for_workers=False,
        master_listen_fd=listener,
    )


NO_RANKS = Ranks()
