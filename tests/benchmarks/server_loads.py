"""hearth against a bare loop and other servers: the loads behind the targets.

Sides alternate within a round and their order turns around with every round, because the machine
may be shared. Prompts differ from round to round, so that no round profits from the last one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
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


def bare(wanted: DecodeLoopRun) -> DecodeLoopResult:
    """The bare loop in a process of its own."""
    options = asdict(wanted)
    model = str(options.pop("model"))
    words = [word for key, value in options.items()
             for word in (f"--{key.replace('_', '-')}", str(value))]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.bare_loop", model, *words],
        check=True,
        capture_output=True,
        env=environment({}),
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
                rates[side].append(_decode_rate(bench, replace(work, seed=f"decode/{turn}")))
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


def _decode_rate(bench: Bench, work: Workload) -> float:
    rate = load(bench.hearth, work, bench.scale).decode_tokens_per_s
    if rate is None:
        raise InvalidResponse(f"hearth never decoded for {work.clients} clients at once")
    return rate


def shared_prompt(bench: Bench, work: Workload = SHARED) -> Iterator[Comparison]:
    """Throughput and TTFT of many clients with one system prompt, against each server."""
    sides = [bench.hearth, *bench.others]
    summaries: dict[str, list[Summary]] = {side.name: [] for side in sides}
    for turn in range(bench.rounds):
        for side in turned(sides, turn):
            numbered = replace(work, seed=f"{work.seed}/{turn}")
            summaries[side.name].append(load(side, numbered, bench.scale))
    own = summaries[bench.hearth.name]
    for other in bench.others:
        theirs = summaries[other.name]
        yield compare(
            f"shared prompt, {work.clients} clients: throughput",
            "tok/s",
            [one.output_tokens_per_s for one in own],
            (other.name, [one.output_tokens_per_s for one in theirs]),
            THROUGHPUT[other.name],
        )
        yield compare(
            f"shared prompt, {work.clients} clients: TTFT p50",
            "s",
            [_p50(one.ttft_s) for one in own],
            (other.name, [_p50(one.ttft_s) for one in theirs]),
            FIRST_TOKEN[other.name],
        )


def repeated_prompt(bench: Bench, prompt_tokens: int = 1000) -> Comparison:
    """TTFT of a long prompt the second time, against the first time."""
    first, second = [], []
    for turn in range(bench.rounds):
        work = Workload(1, 1, prompt_tokens, 4, seed=f"repeated/{turn}")
        first.append(_p50(load(bench.hearth, work, bench.scale).ttft_s))
        second.append(_p50(load(bench.hearth, work, bench.scale).ttft_s))
    name = f"the same {prompt_tokens:,}-token prompt again: TTFT"
    return compare(name, "s", second, ("first time", first), REPEATED)


def turned(sides: Sequence[T], turn: int) -> Sequence[T]:
    """The sides, in turned order in every second round."""
    return sides if turn % 2 == 0 else sides[::-1]


def _p50(values: Percentiles | None) -> float:
    assert values is not None  # load lets no failed request pass
    return values.p50
