"""hearth bench: Benchmark a model on this machine."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.completion import InstalledModel
from cli.errors import USAGE, CliError
from cli.render import print_json, print_table, size
from cli.terminal import can_move, status

if TYPE_CHECKING:
    from cli.bench.load import BenchRun
    from cli.bench.workload import TokenScale, Workload
    from runner.client import Client

MAX_CLIENTS = 1024


def command(
    model: InstalledModel,
    clients: Annotated[
        str, typer.Option(metavar="N,N", help="Numbers of concurrent clients, one run for each")
    ] = "1,4,8",
    requests: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Requests in each run; 2 per client by default"),
    ] = None,
    prompt_tokens: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Length of the prompt in tokens, without the shared prefix"
        ),
    ] = 128,
    output_tokens: Annotated[
        int, typer.Option(metavar="N", min=2, help="Length of the answer in tokens")
    ] = 64,
    shared_prefix: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Length of a system prompt that all requests share"),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Benchmark a model on this machine.

    TTFT: time to first token. PROMPT: prompt tokens per second until then, without cached ones.
    PER TOKEN: time per token after the first. DECODE: tokens per second while all clients are
    decoding. OVERALL: output tokens per second over the whole run.
    """
    from cli.bench.workload import Workload

    nonce = str(time.time_ns())
    works = [
        Workload(
            clients=count,
            requests=max(count, requests or 2 * count),
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            shared_tokens=shared_prefix,
            seed=f"{nonce}/{count}",
        )
        for count in client_counts(clients)
    ]
    _measure(model, works, as_json)


def client_counts(given: str) -> list[int]:
    """The numbers in "1,4,8". Raises CliError."""
    words = [word.strip() for word in given.split(",")]
    if not all(word.isdecimal() and 1 <= int(word) <= MAX_CLIENTS for word in words):
        raise CliError(
            f"--clients {given!r}: use numbers from 1 to {MAX_CLIENTS}, such as 1,4,8", USAGE
        )
    return [int(word) for word in words]


def _measure(model: str, works: list[Workload], as_json: bool) -> None:
    from cli.bench.table import HEADER, row
    from cli.connection import connect

    client = connect()
    status(f"loading {model} ...")
    started_s = time.perf_counter()
    client.load(model)
    load_s = time.perf_counter() - started_s
    runs = _runs(client, model, works)
    memory_bytes = _memory(client)
    if as_json:
        print_json(_report(model, runs, load_s, memory_bytes))
    else:
        print_table(HEADER, [row(run) for run in runs])
        memory = "" if memory_bytes is None else f", memory {size(memory_bytes)}"
        status(f"loaded in {load_s:.1f} s{memory}")
    _check(runs)


def _runs(client: Client, model: str, works: list[Workload]) -> list[BenchRun]:
    from cli.bench.load import calibrate
    from cli.bench.timed_response import InvalidResponse

    try:
        scale = calibrate(client, model)
    except InvalidResponse as error:
        raise CliError(f"cannot benchmark {model}: {error}") from None
    return [_run(client, model, work, scale) for work in works]


def _run(client: Client, model: str, work: Workload, scale: TokenScale) -> BenchRun:
    from cli.bench.load import run

    label = f"{work.clients} client{'s' if work.clients > 1 else ''}"

    def show(done: int) -> None:
        if can_move(sys.stderr):
            ending = "\n" if done == work.requests else ""
            print(f"\r{label}: {done}/{work.requests}", end=ending, file=sys.stderr, flush=True)

    finished = run(client, model, work, scale, show)
    if not can_move(sys.stderr):
        status(f"{label}: {work.requests} requests in {finished.summary.wall_s:.1f} s")
    return finished


def _memory(client: Client) -> int | None:
    """Resident bytes of a daemon of this user on this machine."""
    from cli.daemon import process_of
    from cli.process import tree_rss_bytes

    try:
        return tree_rss_bytes(process_of(client, client.about()).pid)
    except CliError:
        return None


def _report(
    model: str, runs: list[BenchRun], load_s: float, memory_bytes: int | None
) -> dict[str, Any]:
    from cli.bench.machine import machine_facts
    from cli.bench.table import as_json

    return {
        "machine": machine_facts(),
        "model": model,
        "load_s": load_s,
        "memory_bytes": memory_bytes,
        "runs": as_json(runs),
    }


def _check(runs: list[BenchRun]) -> None:
    """Raise CliError when requests failed, with the first reason."""
    failed = sum(run.summary.errors for run in runs)
    if failed:
        total = sum(run.summary.requests for run in runs)
        reason = next(run.summary.first_error for run in runs if run.summary.errors)
        raise CliError(f"{failed} of {total} requests failed; first error: {reason}")
