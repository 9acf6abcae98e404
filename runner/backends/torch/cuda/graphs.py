"""Steps of one token a sequence as CUDA graphs, one for each batch size, captured when it is first
needed.

Owns the tensors whose addresses the graphs have learnt, and how a batch is padded to a size there
is a graph for. How a computation is recorded is a Recorder's matter: CUDA's in production.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from runner.backends.torch.attention.paged import AttentionStep, LayerCache, PagedAttentionStep

Tensor = Any
Computation = Callable[[], Tensor]
Forward = Callable[[Tensor, AttentionStep], Tensor]  # tokens, step -> logits

_SMALL_SIZES = (1, 2, 4, 8)  # then steps of 16: at most a third of a larger batch is padding
_SIZE_STEP = 16
_NOT_STORED = -1


class GraphRecorder(Protocol):
    """Makes computations that can be repeated without being launched one by one."""

    def record(self, compute: Computation) -> Computation:
        """What repeats compute on the same tensors, with what they hold then. The result is the
        same tensor each time. compute has run at least once."""


class CudaGraphRecorder(GraphRecorder):
    """CUDA graphs that share one pool of memory: only one of them runs at a time."""

    def __init__(self) -> None:
        self._pool: Any = None

    def record(self, compute: Computation) -> Computation:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            compute()  # kernels are compiled and libraries opened now, not inside the capture
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            result = compute()
        self._pool = graph.pool()

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The tensors of the largest batch, on the device."""

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    block_tables: Tensor
    query_starts: Tensor
    context_lengths: Tensor


class DecodeGraphs:
    """Runs decode steps of up to most sequences with tables of width blocks."""

    def __init__(
        self,
        forward: Forward,
        caches: Sequence[LayerCache],
        max_sequences: int,
        width: int,
        recorder: GraphRecorder,
        device: Any,
    ) -> None:
        self._forward = forward
        self._caches = caches
        self._recorder = recorder
        self._sizes = sizes_up_to(max_sequences)
        self._graphs: dict[int, Computation] = {}
        largest = self._sizes[-1]
        long = {"dtype": torch.int64, "device": device}
        short = {"dtype": torch.int32, "device": device}
        self._inputs = _Inputs(
            tokens=torch.zeros(largest, **long),
            positions=torch.zeros(largest, **long),
            slots=torch.full((largest,), _NOT_STORED, **long),
            block_tables=torch.zeros((largest, width), **short),
            query_starts=torch.arange(largest + 1, **short),
            context_lengths=torch.zeros(largest, **short),
        )

    def run(self, tokens: Tensor, step: PagedAttentionStep) -> Tensor:
        """The logits [S, vocabulary] of a step of one token for each of S sequences; good until
        the next run. Rows of padding have no context and are stored nowhere."""
        count = len(tokens)
        size = next(size for size in self._sizes if size >= count)
        inputs = self._inputs
        inputs.tokens[:count].copy_(tokens)
        inputs.positions[:count].copy_(step.positions)
        inputs.slots[:count].copy_(step.slots)
        inputs.slots[count:size].fill_(_NOT_STORED)
        inputs.block_tables[:count, : step.block_tables.shape[1]].copy_(step.block_tables)
        inputs.context_lengths[:count].copy_(step.context_lengths)
        inputs.context_lengths[count:size].zero_()
        replay = self._graphs.get(size)
        if replay is None:
            replay = self._graphs[size] = self._recorder.record(lambda: self._compute(size))
        return replay()[:count]

    def _compute(self, size: int) -> Tensor:
        inputs = self._inputs
        step = PagedAttentionStep(
            caches=self._caches,
            positions=inputs.positions[:size],
            slots=inputs.slots[:size],
            block_tables=inputs.block_tables[:size],
            query_starts=inputs.query_starts[: size + 1],
            context_lengths=inputs.context_lengths[:size],
            decodes=size,
        )
        return self._forward(inputs.tokens[:size], step)


def sizes_up_to(max_sequences: int) -> tuple[int, ...]:
    """The batch sizes that there are graphs for: the last one holds most."""
    steps = range(_SIZE_STEP, max_sequences + _SIZE_STEP, _SIZE_STEP)
    sizes = (*_SMALL_SIZES, *steps)
    enough = next(at for at, size in enumerate(sizes) if size >= max_sequences)
    return sizes[: enough + 1]
