"""Adapters side by side: python -m tests.benchmarks.adapters [--model FILE] [--backend torch].

So many clients decode greedily on one engine, in turns: with the base, all with one LoRA adapter,
and each with an adapter of its own. The adapters are random, of the linear maps that --targets
names. Tokens a second are those of one thread by its own CPU time, the tenth fastest of a hundred
steps, since other processes disturb all but that. The target is 0.8 of the base's at 8 clients.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from registry.formats.gguf import read_header
from runner.engine.engine import Engine
from runner.types import Adapters, GenerateRequest, SamplingParams
from tests.adapter_files import write_adapter
from tests.benchmarks.loaded import load

EMBER = Path(__file__).parents[2] / "registry/builtin/ember/ember.gguf"
TARGETS = {
    "qv": ("attn_q", "attn_v"),  # what PEFT changes of most models where nobody says
    "attention": ("attn_q", "attn_k", "attn_v", "attn_output"),
    "all": ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"),
}
TARGET = 0.8
PROMPT_TOKENS = 32


def random_adapter(path: Path, model: Path, names: tuple[str, ...], rank: int, seed: int) -> None:
    """A random adapter of these matrices of every layer."""
    header, random = read_header(model), np.random.default_rng(seed)
    sides = {}
    for tensor in header.tensors:
        if any(tensor.name.endswith(f".{name}.weight") for name in names):
            columns, rows = tensor.dimensions
            a = random.standard_normal((rank, columns), np.float32) / np.float32(columns**0.5)
            b = random.standard_normal((rows, rank), np.float32) * np.float32(0.01)
            sides[tensor.name] = a, b
    write_adapter(path, sides, 2.0 * rank, header.architecture)


def rate(engine: Engine, of_streams: list[Adapters], tokens: int, turn: str) -> float:
    """Tokens a second of streams with these adapters, once all of them decode."""
    for number, adapters in enumerate(of_streams):
        request = GenerateRequest(
            f"{turn}-{number}",
            SamplingParams(temperature=0),
            max_tokens=tokens,
            ignore_eos=True,
            cache_salt=f"{turn}-{number}",
            adapters=adapters,
        )
        engine.submit(request, [100 + 7 * number + 3 * at for at in range(PROMPT_TOKENS)])
    while len(engine.scheduler.decoding) < len(of_streams):
        engine.step()
    steps_s = []
    while len(engine.scheduler.decoding) == len(of_streams):
        began_s = time.thread_time()
        engine.step()
        steps_s.append(time.thread_time() - began_s)
    while engine.busy:
        engine.step()
    return len(of_streams) / sorted(steps_s)[len(steps_s) // 10]


def main() -> int:
    """The command line; 0 when the target is met."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.adapters", description=__doc__
    )
    parser.add_argument("--model", type=Path, default=EMBER)
    parser.add_argument("--backend", choices=("llamacpp", "torch"), default="llamacpp")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--targets", choices=TARGETS, default="all")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    model = load(given.model, given.backend, given.clients, threads=1, context=512)
    engine, names = Engine(model.backend, model.tokenizer), TARGETS[given.targets]
    sides: dict[str, list[Adapters]] = {
        "base": [()] * given.clients,
        "one adapter": [(("0", 1.0),)] * given.clients,
        f"{given.clients} adapters": [((str(n), 1.0),) for n in range(given.clients)],
    }
    rates: dict[str, list[float]] = {name: [] for name in sides}
    bare = rate(engine, sides["base"], given.tokens, "bare")  # before any adapter is loaded
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.clients):
            path = Path(folder) / f"{number}.gguf"
            random_adapter(path, given.model, names, given.rank, number)
            engine.adapters.load(str(number), path)
    for turn in range(given.rounds):
        for name, of_streams in sides.items():
            rates[name].append(rate(engine, of_streams, given.tokens, f"{turn}-{name}"))
    print(
        f"{given.model.name} on {given.backend}, rank {given.rank}, {given.targets},"
        f" {given.clients} clients; {bare:.0f} tokens a CPU second before any adapter was loaded"
    )
    base = statistics.median(rates["base"])
    for name, found in rates.items():
        median = statistics.median(found)
        spread = f"{min(found):.0f} to {max(found):.0f}"
        print(
            f"{name:>12}: {median:6.0f} tokens a CPU second ({spread}),"
            f" {median / base:.2f} of the base"
        )
    return 0 if statistics.median(rates[f"{given.clients} adapters"]) >= TARGET * base else 1


if __name__ == "__main__":
    raise SystemExit(main())
