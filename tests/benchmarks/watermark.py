"""What a watermark costs: python -m tests.benchmarks.watermark MODEL.gguf [--streams 8].

The same prompts are sampled with and without it, in turns, in one process; printed are the tokens a
second of processor time of each side, which other work on the machine does not change much, and
their ratio, which shall be 0.97 or more. With one thread no time is spent in waiting.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from runner.engine.engine import Engine
from runner.types import GenerateRequest, SamplingParams
from tests.benchmarks.loaded import load

TARGET = 0.97
PROMPT_TOKENS = 32


def opened(path: Path, backend: str, streams: int, threads: int) -> Engine:
    """An engine with room for so many sequences."""
    model = load(path, backend, streams, threads=threads)
    print(f"{path.name} on {backend}, vocabulary {model.tokenizer.vocabulary}")
    return Engine(model.backend, model.tokenizer)


def decode(engine: Engine, turn: str, streams: int, tokens: int, *, marked: bool) -> float:
    """Tokens a second of processor time of so many streams, once all of them decode."""
    for number in range(streams):
        params = SamplingParams(seed=number, watermark=marked)
        request = GenerateRequest(
            f"{turn}-{number}", params, max_tokens=tokens, ignore_eos=True, cache_salt=turn
        )
        engine.submit(request, [100 + 7 * number + 3 * at for at in range(PROMPT_TOKENS)])
    while len(engine.scheduler.decoding) < streams:
        engine.step()
    start, steps = time.process_time(), 0
    while len(engine.scheduler.decoding) == streams:
        engine.step()
        steps += 1
    taken_s = time.process_time() - start
    while engine.busy:
        engine.step()
    return streams * steps / taken_s


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0 when the target is met."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.watermark")
    parser.add_argument("model", type=Path)
    parser.add_argument("--backend", choices=("llamacpp", "torch"), default="llamacpp")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    engine = opened(given.model, given.backend, given.streams, given.threads)
    rates: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(given.rounds + 1):
        for marked in (False, True) if turn % 2 else (True, False):
            name = f"{turn}-{marked}"
            rate = decode(engine, name, given.streams, given.tokens, marked=marked)
            if turn:  # the first one warms up
                rates[marked].append(rate)
    plain, marked_rate = (statistics.median(rates[marked]) for marked in (False, True))
    ratio = statistics.median(
        marked / plain for plain, marked in zip(rates[False], rates[True], strict=True)
    )
    print(f"plain {plain:.0f} tokens/s, marked {marked_rate:.0f} tokens/s, {given.streams} streams")
    print(f"ratio {ratio:.3f}, target {TARGET}")
    return 0 if ratio >= TARGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
