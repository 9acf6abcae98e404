"""All benchmarks in one run: python -m tests.benchmarks [--quick] [--only decode,shared,...].

Makes or fetches the model, starts hearth and the servers it is compared with, and writes
results.json and results.md into a new folder under bench-results/, after every result. Takes about
half an hour on two cores. A run with a published model (--model) whose results.json is copied into
docs/data/runs/ is shown by docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from cli.bench.load import calibrate
from cli.bench.machine import machine_facts
from cli.bench.timed_response import InvalidResponse
from tests.benchmarks import busy, cli, random_model, report, server_loads, servers
from tests.benchmarks.comparison import Comparison
from tests.benchmarks.llama_server.build import program
from tests.benchmarks.reference import server_python
from tests.real import models

SERVING = ("decode", "served", "prompt", "shared", "repeated", "deep")
LOADS = (*SERVING, "cli", "busy")
BARE_TOKENS = 64  # of a stream beside a busy core


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, short answers")
    parser.add_argument("--only", default=",".join(LOADS), help="some of " + ",".join(LOADS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", default="1,4,8,16", help="numbers of clients")
    parser.add_argument("--model", help="a GGUF file, or a model of `make real-models`; default: "
                        "random weights")  # fmt: skip
    parser.add_argument("--type", choices=random_model.TYPES, default="Q8_0", dest="kind")
    parser.add_argument("--shape", choices=random_model.SHAPES, default="qwen3-0.6b")
    parser.add_argument("--processor", help="its name, where the system does not tell it")
    parser.add_argument("--cache", type=Path, default=random_model.default_folder())
    parser.add_argument("--out", type=Path, default=servers.ROOT / "bench-results")
    built = program()
    parser.add_argument(
        "--llama-server",
        type=Path,
        default=os.environ.get("LLAMA_SERVER") or (built if built.exists() else None),
        help="llama.cpp's llama-server, to compare with; default: that of `make llama-server`",
    )
    parser.add_argument("--own-spin", action="store_true",
                        help="llama-server's threads wait as OpenMP does by itself, not as briefly "
                        "as hearth's: best on a quiet machine")  # fmt: skip
    parser.add_argument("--no-llama-cpp-server", action="store_true")
    given = parser.parse_args()
    given.loads = given.only.split(",")
    if unknown := set(given.loads) - set(LOADS):
        parser.error(f"--only knows {', '.join(LOADS)}, not {', '.join(sorted(unknown))}")
    if given.quick:
        given.rounds = 1
    return given


def main() -> int:
    """Run what was asked for; 0 when every target was met."""
    given = options()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # stops servers
    folder = given.out / datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True)
    known = dict(facts(given))
    comparisons: list[Comparison] = []
    written = report.write(folder, known, comparisons)
    with tempfile.TemporaryDirectory(prefix="hearth-bench-") as scratch:
        for result in measured(given, Path(scratch), folder):
            print(report.line(result), flush=True)
            comparisons.append(result)
            report.write(folder, known, comparisons)
    print(f"\n{written.read_text('utf-8')}\nwritten to {folder}")
    return 0 if all(one.met is not False for one in comparisons) else 1


def facts(given: argparse.Namespace) -> Mapping[str, Any]:
    """What must be known to read the figures. Paths are left out, but for the names of files."""
    machine = machine_facts()
    model = f"{given.shape} {given.kind}, random weights"
    if given.model:
        published = models.MODELS.get(given.model)
        model = published.about.rpartition(", ")[0] if published else Path(given.model).name
    return {
        "machine": machine,
        "processor": given.processor or machine["cpu"],
        "commit": commit(),
        "model": model,
        "arguments": [Path(word).name if os.path.isabs(word) else word for word in sys.argv[1:]],
        "llama_server": " ".join(servers.LLAMA_SERVER_OPTIONS),
        "rounds": given.rounds,
        "busy_percent": psutil.cpu_percent(2.0),
    }


def measured(given: argparse.Namespace, scratch: Path, logs: Path) -> Iterator[Comparison]:
    """The results, as they come."""
    if "cli" in given.loads:
        yield from cli.measure_cli(scratch, given.rounds)
    if set(SERVING) & set(given.loads):
        with ExitStack() as stack:
            bench = started(given, scratch, logs, stack)
            for load in given.loads:
                try:
                    yield from served(given, load, bench)
                except InvalidResponse as error:  # the other loads are measured all the same
                    print(f"{load}: {error}", file=sys.stderr)
    if "busy" in given.loads:
        yield from busy.beside_busy_core(model_file(given), given.rounds, BARE_TOKENS)


def model_file(given: argparse.Namespace) -> Path:
    """The model, made or fetched where it is missing."""
    if given.model:
        return models.given(given.model).absolute()
    return random_model.ensure_model(given.cache, random_model.SHAPES[given.shape], given.kind)


def started(
    given: argparse.Namespace, scratch: Path, logs: Path, stack: ExitStack
) -> server_loads.Bench:
    """The model and the running servers, stopped when stack ends."""
    model = model_file(given)
    others = []
    if not given.no_llama_cpp_server:
        python = server_python(given.cache)
        others.append(servers.llama_cpp_server(python, model, servers.free_port()))
    if given.llama_server:
        spin = {"GOMP_SPINCOUNT": servers.OPENMP_SPIN_COUNT} if given.own_spin else {}
        port = servers.free_port()
        others.append(servers.llama_server(given.llama_server, model, port, spin))
    home, port = scratch / "home", servers.free_port()
    home.mkdir()
    hearth = stack.enter_context(servers.running(servers.hearth(home, port), logs))
    servers.install_model(model, home, port)
    sides = tuple(stack.enter_context(servers.running(one, logs)) for one in others)
    scale = calibrate(hearth.client, servers.MODEL_NAME)
    return server_loads.Bench(model, hearth, sides, scale, given.rounds)


def served(given: argparse.Namespace, load: str, bench: server_loads.Bench) -> Iterator[Comparison]:
    """One of the loads that need servers."""
    counts = [int(word) for word in given.clients.split(",")]
    tokens = 48 if given.quick else server_loads.OUTPUT_TOKENS
    if load in ("decode", "served"):
        decode = server_loads.served_decode if load == "served" else server_loads.decode_throughput
        for count in counts:
            yield from decode(bench, count, tokens)
    elif load == "prompt":
        yield from server_loads.new_prompt(bench)
    elif load == "shared":
        yield from server_loads.shared_prompt(bench)
    elif load == "repeated":
        yield from server_loads.repeated_prompt(bench)
    elif load == "deep":
        yield from server_loads.deep_decode(bench)


def commit() -> str | None:
    """The commit that is measured; with "+" when files differ from it."""
    describe = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(describe, capture_output=True, text=True, cwd=servers.ROOT, check=False)
    return done.stdout.strip() or None


if __name__ == "__main__":
    sys.exit(main())
