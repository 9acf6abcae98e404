"""What a decode step costs the host: python -m tests.benchmarks.steps [--sequences 64].

The model computes nothing: its logits are there already. What is left is scheduling, the tensors
of the step, choosing tokens of a vocabulary of 64, and text. CPU time of the one thread, the
least of several windows, since other processes disturb all but that; in turns for
what is compared. The target is 150 µs at 64 sequences.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from runner.backends.backend import Capacity, Row, SampledToken
from runner.backends.torch.attention.block_pool import BlockPool
from runner.backends.torch.attention.paged import AttentionStep, create_caches
from runner.backends.torch.backend import TorchBackend
from runner.backends.torch.executor import CacheGeometry, LocalExecutor
from runner.engine.engine import Engine
from runner.types import GenerateRequest, SamplingParams
from tests.fake_backend import FakeTokenizer

Tensor = Any
VOCABULARY, CONTEXT, BLOCK = 64, 4096, 64
WINDOW_STEPS = 50
TARGET_US = 150.0


class NullModel:
    """Computes nothing. Its likeliest token is always the same."""

    def __init__(self, sequences: int) -> None:
        self._hidden = torch.zeros(sequences, 1)
        self._logits = torch.zeros(sequences, VOCABULARY)
        self._logits[:, 33] = 1.0

    def forward(
        self, tokens: Tensor, step: AttentionStep, vectors: Sequence[tuple[int, Any]] = ()
    ) -> Tensor:
        """See backend.Model."""
        return self._hidden[: len(tokens)]

    def logits(self, hidden: Tensor) -> Tensor:
        """See backend.Model."""
        return self._logits[: len(hidden)]


class Instant(TorchBackend):
    """Chooses without looking: what is left is the engine."""

    def step(self, rows: Sequence[Row]) -> list[SampledToken]:
        """See Backend.step."""
        return [SampledToken(row.sequence, 33) for row in rows if row.sampler is not None]


def backend_of(kind: type[TorchBackend], sequences: int) -> TorchBackend:
    """A backend with room for the sequences, without weights."""
    torch.set_num_threads(1)
    blocks = sequences * (CONTEXT // BLOCK)
    capacity = Capacity(
        blocks * BLOCK, sequences, CONTEXT, max(sequences, 256), VOCABULARY, 1, True
    )
    caches = create_caches(1, (blocks, BLOCK, 1, 1), torch.float32, "cpu")
    pool = BlockPool(blocks, BLOCK, sequences, CONTEXT)
    geometry = CacheGeometry(BLOCK, sequences, CONTEXT // BLOCK)
    executor = LocalExecutor(NullModel(256 + sequences), caches, geometry, "cpu")
    return kind(executor, capacity, pool)


def stepper(kind: type[TorchBackend], sequences: int) -> Callable[[], object]:
    """The step of an engine in which so many sequences decode."""
    engine = Engine(backend_of(kind, sequences), FakeTokenizer())
    for number in range(sequences):
        request = GenerateRequest(
            f"r{number}",
            SamplingParams(temperature=0),
            max_tokens=CONTEXT - 8,
            ignore_eos=True,
            cache_salt=str(number),
        )
        engine.submit(request, [1, 2, 3])
    for _ in range(sequences):
        engine.step()
    assert len(engine.scheduler.decoding) == sequences, "not all of the sequences decode"
    return engine.step


def microseconds(step: Callable[[], object]) -> float:
    """CPU time of one step, by a window of them."""
    start_ns = time.thread_time_ns()
    for _ in range(WINDOW_STEPS):
        step()
    return (time.thread_time_ns() - start_ns) / WINDOW_STEPS / 1000


def main() -> int:
    """The command line; 0 when the target is met."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.steps", description=__doc__)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--windows", type=int, default=30)
    given = parser.parse_args()
    sides = {"whole step": TorchBackend, "engine alone": Instant}
    steps = {name: stepper(kind, given.sequences) for name, kind in sides.items()}
    least = dict.fromkeys(steps, float("inf"))
    for _ in range(given.windows):
        for name, step in steps.items():
            least[name] = min(least[name], microseconds(step))
    for name, found in least.items():
        print(f"{name}: {found:.0f} µs at {given.sequences} sequences")
    return 0 if least["whole step"] <= TARGET_US or given.sequences != 64 else 1


if __name__ == "__main__":
    raise SystemExit(main())
