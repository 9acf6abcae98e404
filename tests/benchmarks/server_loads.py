"""hearth against a bare loop and other servers: the loads behind the targets.

Sides alternate within a round and their order turns around with every round, because the machine
may be shared. Prompts differ from round to round, so that no round profits from the last one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from cli.bench.load import run
from cli.bench.summary import Percentiles, Summary
from cli.bench.timed_response import InvalidResponse
from cli.bench.workload import TokenScale, Workload
from kernels.native import library_path
from tests.benchmarks.bare_loop import DecodeLoopResult, DecodeLoopRun
from tests.benchmarks.comparison import Comparison, RatioTarget, compare
from tests.benchmarks.servers import MODEL_NAME, ROOT, Side, environment

T = TypeVar("T")

DECODE = RatioTarget("at least", 0.95)
THROUGHPUT = {
    "llama_cpp.server": RatioTarget("at least", 2.0),
    "llama-server": RatioTarget("at least", 2.5),
}
FIRST_TOKEN = {
    "llama_cpp.server": RatioTarget("at most", 0.2),
    "llama-server": RatioTarget("at most", 0.4),
}
REPEATED = RatioTarget("at most", 0.1)
SERVED = {1: RatioTarget("at least", 1.0), 16: RatioTarget("at least", 3.0)}  # by clients
PROMPT = RatioTarget("at most", 1.0)
DEEP = RatioTarget("at least", 1.5)

PROMPT_TOKENS, OUTPUT_TOKENS = 128, 128
SHARED = Workload(
    clients=8, requests=16, prompt_tokens=32, output_tokens=48, shared_tokens=512, seed="shared"
)


@dataclass(frozen=True, slots=True)
class Bench:
    """What all loads need: the model file, the servers, and how often to repeat."""

    model: Path
    hearth: Side
    others: tuple[Side, ...]
    scale: TokenScale
    rounds: int = 3


def load(side: Side, work: Workload, scale: TokenScale) -> Summary:
    """One run against one server. Raises InvalidResponse when a request failed."""
    summary = run(side.client, MODEL_NAME, work, scale).summary
    if summary.errors:
        raise InvalidResponse(f"{side.name}: {summary.errors} errors, first: {summary.first_error}")
    return summary


def bare(wanted: DecodeLoopRun, **variables: str) -> DecodeLoopResult:
    """The bare loop in a process of its own, with these variables in its environment."""
    options = asdict(wanted)
    model = str(options.pop("model"))
    words = [word for key, value in options.items()
             for word in (f"--{key.replace('_', '-')}", str(value))]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.bare_loop", model, *words],
        check=True,
        capture_output=True,
        env=environment(variables),
        cwd=ROOT,
        timeout=1800,
    )
    return DecodeLoopResult(**json.loads(done.stdout))


def decode_throughput(bench: Bench, clients: int, output_tokens: int) -> Iterator[Comparison]:
    """Tokens a second while all clients decode, against the bare loop with the same batch: as
    llama.cpp is, and with hearth's kernels in it, which shows the price of serving alone."""
    wanted = DecodeLoopRun(
        str(bench.model),
        sequences=clients,
        prompt_tokens=PROMPT_TOKENS,
        output_tokens=output_tokens,
    )
    loops = {"bare loop": wanted}
    if library_path("llamacpp") is not None:
        loops["bare loop, hearth's kernels"] = replace(wanted, kernels=1)
    work = Workload(clients, clients, PROMPT_TOKENS, output_tokens)
    rates: dict[str, list[float]] = {name: [] for name in ("hearth", *loops)}
    for turn in range(bench.rounds):
        for side in turned(list(rates), turn):
            if side == "hearth":
                done = load(bench.hearth, replace(work, seed=f"decode/{turn}"), bench.scale)
                rates[side].append(_decode_rate(done))
            else:
                rates[side].append(bare(loops[side]).decode_tokens_per_s)
    for name, target in zip(loops, (DECODE, None), strict=False):
        yield compare(
            f"decode, {clients} client{'s' if clients > 1 else ''}",
            "tok/s",
            rates["hearth"],
            (name, rates[name]),
            target,
        )


def served_decode(bench: Bench, clients: int, output_tokens: int) -> Iterator[Comparison]:
    """Tokens a second while all clients decode, and the time per token."""
    name = f"decode, {clients} client{'s' if clients > 1 else ''}"
    work = Workload(clients, clients, PROMPT_TOKENS, output_tokens, seed=name)
    found = in_turns(bench, work, batching(bench))
    yield from _beside(found, name, "tok/s", _decode_rate, SERVED.get(clients))
    yield from _beside(found, f"{name}: time per token", "ms", lambda one: 1000 * _p50(one.tpot_s))


def new_prompt(bench: Bench, prompt_tokens: int = 1500) -> Iterator[Comparison]:
    """TTFT of a prompt that no server has seen."""
    work = Workload(1, 1, prompt_tokens, 4, seed="prompt")
    found = in_turns(bench, work, batching(bench))
    name = f"prompt of {prompt_tokens:,} tokens: TTFT"
    yield from _beside(found, name, "s", lambda one: _p50(one.ttft_s), PROMPT)


def deep_decode(
    bench: Bench, prompt_tokens: int = 8000, output_tokens: int = 48
) -> Iterator[Comparison]:
    """TTFT of one long prompt, and tokens a second after it, which every server remembers."""
    work = Workload(1, 1, prompt_tokens, 4, seed="deep")
    sides = batching(bench)
    first = {side.name: [load(side, work, bench.scale)] for side in sides}
    name = f"prompt of {prompt_tokens:,} tokens: TTFT"
    yield from _beside(first, name, "s", lambda one: _p50(one.ttft_s), PROMPT)
    found = in_turns(bench, replace(work, output_tokens=output_tokens), sides, new=False)
    name = f"decode after {prompt_tokens:,} tokens"
    yield from _beside(found, name, "tok/s", lambda one: 1 / _p50(one.tpot_s), DEEP)


def shared_prompt(bench: Bench, work: Workload = SHARED) -> Iterator[Comparison]:
    """Throughput and TTFT of many clients with one system prompt, against each server."""
    found = in_turns(bench, work, [bench.hearth, *bench.others])
    name = f"shared prompt, {work.clients} clients"
    for other in bench.others:
        pair = {each: found[each] for each in (bench.hearth.name, other.name)}
        yield from _beside(
            pair, name, "tok/s", lambda one: one.output_tokens_per_s,
            THROUGHPUT[other.name],
        )  # fmt: skip
        yield from _beside(
            pair, f"{name}: TTFT p50", "s", lambda one: _p50(one.ttft_s), FIRST_TOKEN[other.name]
        )


def repeated_prompt(bench: Bench, prompt_tokens: int = 1000) -> Iterator[Comparison]:
    """TTFT of a long prompt the second time, against the first time and against others."""
    found: dict[str, list[Summary]] = {}
    first: list[float] = []
    for turn in range(bench.rounds):
        work = Workload(1, 1, prompt_tokens, 4, seed=f"repeated/{turn}")
        for side in turned(batching(bench), turn):
            again = [load(side, work, bench.scale) for _ in range(2)]
            found.setdefault(side.name, []).append(again[1])
            if side is bench.hearth:
                first.append(_p50(again[0].ttft_s))
    name = f"{prompt_tokens:,} tokens again: TTFT"
    second = [_p50(one.ttft_s) for one in found[bench.hearth.name]]
    yield compare(name, "s", second, ("first time", first), REPEATED)
    yield from _beside(found, name, "s", lambda one: _p50(one.ttft_s))


def batching(bench: Bench) -> list[Side]:
    """hearth and the servers that answer several clients at once."""
    return [bench.hearth, *(side for side in bench.others if side.name != "llama_cpp.server")]


def in_turns(
    bench: Bench, work: Workload, sides: Sequence[Side], *, new: bool = True
) -> dict[str, list[Summary]]:
    """What each side did in each round. new: with other prompts in each round."""
    found: dict[str, list[Summary]] = {bench.hearth.name: []}
    for turn in range(bench.rounds):
        asked = replace(work, seed=f"{work.seed}/{turn}") if new else work
        for side in turned(sides, turn):
            found.setdefault(side.name, []).append(load(side, asked, bench.scale))
    return found


def _beside(
    found: Mapping[str, Sequence[Summary]],
    name: str,
    unit: str,
    figure: Callable[[Summary], float],
    target: RatioTarget | None = None,
) -> Iterator[Comparison]:
    """hearth, which is the first, beside each of the others."""
    own, *others = found
    for other in others:
        theirs = [figure(one) for one in found[other]]
        yield compare(name, unit, [figure(one) for one in found[own]], (other, theirs), target)


def turned(sides: Sequence[T], turn: int) -> Sequence[T]:
    """The sides, in turned order in every second round."""
    return sides if turn % 2 == 0 else sides[::-1]


def _p50(values: Percentiles | None) -> float:
    assert values is not None  # load lets no failed request pass
    return values.p50


def _decode_rate(done: Summary) -> float:
    if done.decode_tokens_per_s is None:
        raise InvalidResponse(f"{done.requests} clients never decoded at once")
    return done.decode_tokens_per_s
