"""Many requests at once, through the engine: nano-vllm's settings, and transformers beside us."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.backends.backend import Row, Tokenizer
from runner.backends.torch.executor import LocalExecutor
from runner.engine.engine import Engine
from runner.types import GenerateRequest, SamplingParams
from tests.benchmarks.gpu.loaded import Loaded, load
from tests.benchmarks.gpu.machine import Machine, Target, wait
from tests.benchmarks.gpu.shapes import CONFIGS, small

NANO = {
    "qwen3-0.6b": Target("256 requests as nano-vllm's, 0.6B", 0.6, "decode roofline"),
    "qwen3-8b": Target("256 requests as nano-vllm's, 8B", 0.6, "decode roofline"),
}
BESIDE = "qwen3-0.6b"
TRANSFORMERS = {
    "generate": Target("64 requests, 0.6B", 5.0, "generate"),
    "batching": Target("64 requests, 0.6B", 5.0, "their batching"),
}
TARGETS = (*NANO.values(), *TRANSFORMERS.values())
THEIR_SIDE = Path(__file__).with_name("transformers_side.py")
_TIMEOUT_S = 1800


class Plain(Tokenizer):
    """Every token is a letter."""

    bos: int | None = None
    eos: int | None = None

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary

    def encode(
        self, text: str, *, add_bos: bool, parse_special: bool, max_tokens: int | None = None
    ) -> list[int]:
        return [ord(letter) % self.vocabulary for letter in text]

    def min_tokens(self, text: str) -> int:
        return 0

    def piece(self, token: int) -> bytes:
        return b"x"

    def text(self, token: int) -> str:
        return "x"

    def is_end(self, token: int) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: its prompt and how many tokens it wants."""

    prompt: Sequence[int]
    tokens: int


def nano_requests(machine: Machine) -> list[Asked]:
    """256 requests of 100 to 1,024 tokens in and out, seed 0."""
    count, low, high = (6, 4, 24) if machine.small else (256, 100, 1024)
    words = 500 if machine.small else 10_000
    chosen = random.Random(0)
    prompts = [
        [chosen.randint(0, words) for _ in range(chosen.randint(low, high))] for _ in range(count)
    ]
    return [Asked(prompt, chosen.randint(low, high)) for prompt in prompts]


def even_requests(machine: Machine) -> list[Asked]:
    """64 requests of 128 tokens in and 128 out."""
    count, size = (4, 8) if machine.small else (64, 128)
    return [Asked([3 + at] * size, size) for at in range(count)]


def run(model: Loaded, asked: Sequence[Asked], vocabulary: int) -> float:
    """Seconds until all are answered."""
    engine = Engine(model.backend, Plain(vocabulary))
    for number, each in enumerate(asked):
        request = GenerateRequest(
            f"r{number}",
            SamplingParams(temperature=0.6, seed=number),
            max_tokens=each.tokens,
            ignore_eos=True,
        )
        engine.submit(request, each.prompt)
    executor = model.backend._executor
    assert isinstance(executor, LocalExecutor)
    device = "cuda" if executor._batch._device.type == "cuda" else "cpu"
    wait(device)
    start_s = time.perf_counter()
    while engine.busy:
        failed = engine.step().errors
        assert not failed, failed
    wait(device)
    return time.perf_counter() - start_s


def roofline_s(model: Loaded, asked: Sequence[Asked], copy: float) -> float:
    """The time in which the weights of each decode step and the cache of its sequences can be
    read, when all requests begin together: prompts and arithmetic cost nothing."""
    total = 0.0
    for step in range(max(each.tokens for each in asked)):
        contexts = sum(len(each.prompt) + step for each in asked if each.tokens > step)
        total += model.computed_bytes + model.token_bytes * contexts
    return total / copy


def nano(machine: Machine) -> Iterator[str]:
    """nano-vllm's benchmark settings."""
    asked = nano_requests(machine)
    for name, target in NANO.items():
        model = load_for(machine, name, asked)
        warm(model)
        taken_s = run(model, asked, CONFIGS[name]["vocab_size"])
        share = roofline_s(model, asked, machine.copy) / taken_s
        model.backend.close()
        tokens = sum(each.tokens for each in asked)
        yield target.line(share, f"{tokens / taken_s:,.0f} tokens/s of output, {taken_s:.1f} s")


def load_for(machine: Machine, name: str, asked: Sequence[Asked]) -> Loaded:
    """The shape called name with room for all requests at once."""
    longest = max(len(each.prompt) + each.tokens for each in asked) + 16
    return load(
        small(CONFIGS[name]) if machine.small else CONFIGS[name],
        "bf16",
        machine.device,
        context_length=longest,
        pool_tokens=sum(len(each.prompt) + each.tokens for each in asked),
        max_sequences=len(asked),
        batch_tokens=64 if machine.small else 8192,
    )


def warm(model: Loaded) -> None:
    """Compiles the kernels: a prompt and a few tokens of each size of batch."""
    most = model.backend.capacity.max_sequences
    sampler = model.backend.create_sampler(SamplingParams(temperature=0))
    for count in sorted({1, 2, 4, 8, *range(16, most + 1, 16), most} & set(range(most + 1))):
        model.backend.step([Row(at, [5, 6], 0, sampler) for at in range(count)])
        model.backend.step([Row(at, [5], 2, sampler) for at in range(count)])
        model.backend.reset()


def beside(machine: Machine, python: str | None) -> Iterator[str]:
    """Against transformers on the same machine; python: that of an environment that has it."""
    if python is None:
        for target in TRANSFORMERS.values():
            yield target.line(None, "name an environment by --transformers")
        return
    asked = even_requests(machine)
    values = small(CONFIGS[BESIDE]) if machine.small else CONFIGS[BESIDE]
    theirs = _their_rates(machine, python, values, asked)
    model = load_for(machine, BESIDE, asked)
    warm(model)
    ours = sum(each.tokens for each in asked) / run(model, asked, values["vocab_size"])
    model.backend.close()
    for name, target in TRANSFORMERS.items():
        rate = theirs.get(name)
        figure = f"{ours:,.0f} tokens/s; theirs {theirs.get(f'{name}_error', 'was not run')}"
        if rate is not None:
            figure = f"{ours:,.0f} tokens/s for {rate:,.0f}"
        yield target.line(None if rate is None else ours / rate, figure)


def _their_rates(
    machine: Machine, python: str, values: dict[str, Any], asked: Sequence[Asked]
) -> dict[str, Any]:
    job = {
        "device": machine.device,
        "config": values,
        "requests": len(asked),
        "prompt": len(asked[0].prompt),
        "tokens": asked[0].tokens,
    }
    done = subprocess.run(
        [python, str(THEIR_SIDE)],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    if done.returncode:
        return dict.fromkeys(("generate_error", "batching_error"), done.stderr.strip()[-200:])
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
