"""Two builds of llama.cpp beside each other: python -m tests.benchmarks.builds MODEL PYTHON PYTHON.

Each PYTHON is that of an environment with one of them. Both compute the same prompt and the same
answer in turns, on one thread; what is compared is processor time, since other work may share the
cores. Printed: the median over the rounds of how fast the first is, in terms of the second, with
the quartiles. hearth's own kernels take no part.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack

PROMPT_TOKENS = 256
ANSWER_TOKENS = 32
PARTS = ("prompt", "answer")


def serve(model: str) -> None:
    """The process of one build: for each line it computes a prompt and its answer, and prints the
    processor seconds of both."""
    from tests.benchmarks.bare_loop import DecodeLoopRun, Loop

    loop = Loop(DecodeLoopRun(model, context_tokens=512, context_sequences=1, threads=1))
    tokens = [(7 * index + 11) % loop.vocabulary for index in range(PROMPT_TOKENS + ANSWER_TOKENS)]
    rows = [(0, token, position, False) for position, token in enumerate(tokens)]
    for _ in sys.stdin:
        loop.clear()
        spent_s = [time.process_time()]
        loop.decode([*rows[: PROMPT_TOKENS - 1], (*rows[PROMPT_TOKENS - 1][:3], True)])
        loop.best(PROMPT_TOKENS - 1)
        spent_s.append(time.process_time())
        for row in rows[PROMPT_TOKENS:]:
            loop.decode([(*row[:3], True)])
            loop.best(0)
        spent_s.append(time.process_time())
        print(spent_s[1] - spent_s[0], spent_s[2] - spent_s[1], flush=True)


class Build:
    """The process of one build."""

    def __init__(self, stack: ExitStack, python: str, model: str) -> None:
        command = [python, "-m", "tests.benchmarks.builds", "--serve", model]
        self._process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )

    def measure(self) -> list[float]:
        """The processor seconds of PARTS."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(flush=True, file=self._process.stdin)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("a build could not compute the model: see above")
        return [float(word) for word in answer.split()]


def compare(model: str, pythons: tuple[str, str], rounds: int) -> None:
    """Prints a line for each of PARTS."""
    with ExitStack() as stack:
        builds = [Build(stack, python, model) for python in pythons]
        for build in builds:
            build.measure()  # reads the file
        found: list[list[list[float]]] = []
        for number in range(rounds):
            order = (0, 1) if number % 2 == 0 else (1, 0)
            times = {index: builds[index].measure() for index in order}
            found.append([times[0], times[1]])
    for index, part in enumerate(PARTS):
        ratios = [second[index] / first[index] for first, second in found]
        low, middle, high = statistics.quantiles(ratios, n=4)
        each = (statistics.median(pair[build][index] for pair in found) for build in (0, 1))
        spent = " and ".join(f"{seconds * 1000:.0f} ms" for seconds in each)
        print(f"{part}: {middle:.3f} ({low:.3f} to {high:.3f}), {spent}, {rounds} rounds")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.builds", description=__doc__)
    parser.add_argument("--serve", metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("model", nargs="?")
    parser.add_argument("python", nargs="*")
    given = parser.parse_args()
    if given.serve:
        serve(given.serve)
    elif given.model is None or len(given.python) != 2:
        parser.error("a model and the Pythons of two environments are needed")
    else:
        compare(given.model, tuple(given.python), given.rounds)


if __name__ == "__main__":
    main()
