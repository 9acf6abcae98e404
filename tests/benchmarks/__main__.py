"""All benchmarks in one run: python -m tests.benchmarks [--quick] [--only decode,shared,...].

Makes the model, starts hearth and the servers it is compared with, and writes results.json and
results.md into a new folder under bench-results/. Takes about half an hour on two cores.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from cli.bench.load import calibrate
from cli.bench.machine import machine_facts
from tests.benchmarks import cli, matrix, random_model, report, server_loads, servers
from tests.benchmarks.comparison import Comparison
from tests.benchmarks.reference import server_python

LOADS = ("decode", "shared", "repeated", "matrix", "cli")
SERVING = {"decode", "shared", "repeated", "matrix"}


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, short answers")
    parser.add_argument("--only", default=",".join(LOADS), help="some of " + ",".join(LOADS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", default="1,4,8,16", help="numbers of clients")
    parser.add_argument("--type", choices=random_model.TYPES, default="Q8_0", dest="kind")
    parser.add_argument("--shape", choices=random_model.SHAPES, default="qwen3-0.6b")
    parser.add_argument("--cache", type=Path, default=random_model.default_folder())
    parser.add_argument("--out", type=Path, default=servers.ROOT / "bench-results")
    parser.add_argument(
        "--llama-server",
        type=Path,
        default=os.environ.get("LLAMA_SERVER"),
        help="path of llama.cpp's llama-server, to compare with",
    )
    parser.add_argument("--no-llama-cpp-server", action="store_true")
    given = parser.parse_args()
    unknown = set(given.only.split(",")) - set(LOADS)
    if unknown:
        parser.error(f"--only knows {', '.join(LOADS)}, not {', '.join(sorted(unknown))}")
    return given


def main() -> int:
    """Run what was asked for; 0 when every target was met."""
    given = options()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # stops servers
    folder = given.out / datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True)
    facts = {
        "machine": machine_facts(),
        "commit": commit(),
        "model": f"{given.shape} {given.kind}, random weights",
        "arguments": sys.argv[1:],
    }
    comparisons: list[Comparison] = []
    cells: list[matrix.Cell] = []
    with tempfile.TemporaryDirectory(prefix="hearth-bench-") as scratch:
        for result in measured(given, Path(scratch), folder):
            print(report.line(result), flush=True)
            if isinstance(result, Comparison):
                comparisons.append(result)
            else:
                cells.append(result)
            written = report.write(folder, facts, comparisons, cells)
    print(f"\n{written.read_text('utf-8')}\nwritten to {folder}")
    return 0 if all(one.met is not False for one in comparisons) else 1


def measured(
    given: argparse.Namespace, scratch: Path, logs: Path
) -> Iterator[Comparison | matrix.Cell]:
    """The results, as they come."""
    loads = set(given.only.split(","))
    if "cli" in loads:
        yield from cli.measure_cli(scratch, 1 if given.quick else given.rounds)
    if loads & SERVING:
        with ExitStack() as stack:
            yield from served(given, loads, started(given, scratch, logs, stack))


def started(
    given: argparse.Namespace, scratch: Path, logs: Path, stack: ExitStack
) -> server_loads.Bench:
    """The model and the running servers, stopped when stack ends."""
    model = random_model.ensure_model(given.cache, random_model.SHAPES[given.shape], given.kind)
    others = []
    if not given.no_llama_cpp_server:
        python = server_python(given.cache)
        others.append(servers.llama_cpp_server(python, model, servers.free_port()))
    if given.llama_server:
        others.append(servers.llama_server(given.llama_server, model, servers.free_port()))
    home, port = scratch / "home", servers.free_port()
    home.mkdir()
    hearth = stack.enter_context(servers.running(servers.hearth(home, port), logs))
    servers.install_model(model, home, port)
    sides = tuple(stack.enter_context(servers.running(one, logs)) for one in others)
    scale = calibrate(hearth.client, servers.MODEL_NAME)
    return server_loads.Bench(model, hearth, sides, scale, 1 if given.quick else given.rounds)


def served(
    given: argparse.Namespace, loads: set[str], bench: server_loads.Bench
) -> Iterator[Comparison | matrix.Cell]:
    """The loads that need servers."""
    counts = [int(word) for word in given.clients.split(",")]
    if "decode" in loads:
        tokens = 48 if given.quick else server_loads.OUTPUT_TOKENS
        for count in counts:
            yield from server_loads.decode_throughput(bench, count, tokens)
    if "shared" in loads:
        yield from server_loads.shared_prompt(bench)
    if "repeated" in loads:
        yield server_loads.repeated_prompt(bench)
    if "matrix" in loads:
        sides = [bench.hearth, *bench.others]
        yield from matrix.matrix(sides, bench.scale, counts, 16 if given.quick else 48)


def commit() -> str | None:
    """The commit that is measured; with "+" when files differ from it."""
    describe = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(describe, capture_output=True, text=True, cwd=servers.ROOT, check=False)
    return done.stdout.strip() or None


if __name__ == "__main__":
    sys.exit(main())
