"""`python -m tests.benchmarks.gpu [NAMES] [--small] [--transformers PYTHON]`: the torch engine
against what its GPU can do.

Prints a line for each target: what was reached, beside the copy bandwidth and the matrix rate that
the machine gives, measured first. Weights are random and of real shapes; nothing is read from
a disk. Without a GPU it says "not measured"; --small runs all of it with tiny shapes on any device,
to see that it works. PYTHON is that of another environment, which has transformers.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial

import torch

from tests.benchmarks.gpu import single_stream, throughput
from tests.benchmarks.gpu.machine import Machine, Target, measure_machine

Measured = Callable[[Machine], Iterator[str]]
WHAT: dict[str, tuple[Target, ...]] = {
    "decode": tuple(single_stream.DECODE.values()),
    "prefill": (single_stream.PREFILL,),
    "kernels": (single_stream.DECODE_KERNEL, single_stream.PREFILL_KERNEL),
    "nano": tuple(throughput.NANO.values()),
    "transformers": tuple(throughput.TRANSFORMERS.values()),
}


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(WHAT)}; all if none is given")
    parser.add_argument("--small", action="store_true", help="tiny shapes, to see that it runs")
    parser.add_argument("--transformers", help="the python of an environment that has it")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in WHAT]
    if unknown:
        parser.error(f"{unknown[0]!r} is none of {', '.join(WHAT)}")
    names = given.names or list(WHAT)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not given.small:
        for name in names:
            for target in WHAT[name]:
                print(target.line(None, "no GPU here"))
        return 0
    machine = measure_machine(device, small=given.small)
    print(machine.describe())
    if machine.small:
        print("tiny shapes: what follows shows that it runs, and is no figure")
    run: dict[str, Measured] = {
        "decode": single_stream.decodes,
        "prefill": single_stream.prefill,
        "kernels": single_stream.kernels,
        "nano": throughput.nano,
        "transformers": partial(throughput.beside, python=given.transformers),
    }
    for name in names:
        for line in run[name](machine):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
