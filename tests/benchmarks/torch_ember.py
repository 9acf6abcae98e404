"""ember on both backends: python -m tests.benchmarks.torch_ember [--streams 1].

Both generate greedily from the same prompts, in turns, in one process. The target is half of
llamacpp's tokens a second on a CPU.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from runner.backends.backend import LoadedBackend
from runner.engine.engine import Engine
from runner.types import GenerateRequest, SamplingParams
from tests.benchmarks.loaded import load

EMBER = Path(__file__).parents[2] / "registry/builtin/ember/ember.gguf"
BACKENDS = ("llamacpp", "torch")
TARGET = 0.5


class Side:
    """One backend with its engine, and the rates that were measured."""

    def __init__(self, model: LoadedBackend) -> None:
        self.engine = Engine(model.backend, model.tokenizer)
        self.rates: list[float] = []
        self.turn = 0

    def decode(self, streams: int, tokens: int) -> float:
        """Tokens a second of so many streams, once all of them decode."""
        self.turn += 1
        for number in range(streams):
            request = GenerateRequest(
                f"{self.turn}-{number}",
                SamplingParams(temperature=0),
                max_tokens=tokens,
                ignore_eos=True,
                cache_salt=f"{self.turn}-{number}",
            )
            self.engine.submit(request, [100 + 7 * number + 3 * at for at in range(32)])
        while len(self.engine.scheduler.decoding) < streams:
            self.engine.step()
        start, steps = time.perf_counter(), 0
        while len(self.engine.scheduler.decoding) == streams:
            self.engine.step()
            steps += 1
        taken = time.perf_counter() - start
        while self.engine.busy:
            self.engine.step()
        return streams * steps / taken


def main() -> int:
    """The command line; 0 when the target is met."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.torch_ember", description=__doc__
    )
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    sides = {
        name: Side(load(EMBER, name, given.streams, threads=given.threads)) for name in BACKENDS
    }
    for turn in range(given.rounds + 1):
        for side in sides.values():
            rate = side.decode(given.streams, given.tokens)
            if turn:  # the first one warms up
                side.rates.append(rate)
    rates = {name: statistics.median(side.rates) for name, side in sides.items()}
    for name, rate in rates.items():
        print(f"{name}: {rate:.0f} tokens/s of {given.streams} streams")
    ratio = rates["torch"] / rates["llamacpp"]
    print(f"ratio {ratio:.2f}, target {TARGET}")
    return 0 if ratio >= TARGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
