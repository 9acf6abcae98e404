"""Recorded decode steps: padded, repeated, the same logits as computed one by one.

A recorder that repeats the computation stands for CUDA's: it sees the same addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from runner.backends.backend import LoadedBackend, Row
from runner.backends.torch.attention.paged import PagedAttentionStep
from runner.backends.torch.backend import TorchBackend
from runner.backends.torch.batch import StepBatch, create_inputs, create_layout
from runner.backends.torch.cuda.graphs import DecodeGraphs, sizes_up_to
from runner.backends.torch.executor import LocalExecutor

Tensor = Any


class Repeating:
    """Counts what is recorded; each result goes to one tensor, as with a graph."""

    def __init__(self) -> None:
        self.recorded = 0

    def record(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.recorded += 1
        result = compute()

        def replay() -> Tensor:
            return result.copy_(compute())

        return replay


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (1, (1,)),
        (3, (1, 2, 4)),
        (8, (1, 2, 4, 8)),
        (9, (1, 2, 4, 8, 16)),
        (33, (1, 2, 4, 8, 16, 32, 48)),
    ],
)
def test_the_sizes_reach_the_most_sequences_and_no_further(
    most: int, expected: tuple[int, ...]
) -> None:
    assert sizes_up_to(most) == expected


def test_a_recorded_step_gives_the_logits_of_a_computed_one(loaded: LoadedBackend) -> None:
    backend = loaded.backend
    assert isinstance(backend, TorchBackend)
    executor, pool = backend._executor, backend._pool
    assert isinstance(executor, LocalExecutor)
    model, caches = executor._model, executor.caches
    assert model is not None

    def forward(tokens: Tensor, step: Any) -> Tensor:
        return model.logits(model.forward(tokens, step))

    recorder = Repeating()
    graphs = DecodeGraphs(forward, caches, 8, pool.tables.shape[1], recorder, "cpu")
    batch = StepBatch(caches, pool.block_size, "cpu", tables=True)
    prompts = ([5, 9, 2], [7] * 20, [3], [11, 12], [40] * 17)
    for sequence, prompt in enumerate(prompts):
        backend.step([Row(sequence, prompt, 0)])
    for present in ((0, 1, 2), (3, 4), (0, 1, 2, 3, 4), (1, 2, 4)):
        rows = [Row(one, [17 + one], int(pool.lengths[one])) for one in present]
        layout = create_layout(rows, backend.capacity, pool.lengths)
        with torch.inference_mode():
            pool.extend(layout.sequences, layout.counts)
            tokens, step = batch.fill(create_inputs(rows, layout, pool, ()))
            assert isinstance(step, PagedAttentionStep)
            recorded = graphs.run(tokens, step).clone()
            expected = forward(tokens, step)
        assert recorded.shape == expected.shape
        assert np.abs((recorded - expected).numpy()).max() < 0.3
        assert recorded.argmax(-1).tolist() == expected.argmax(-1).tolist()
    assert recorder.recorded == 3  # of 4, 2 and 8 rows
