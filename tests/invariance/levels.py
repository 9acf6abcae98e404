"""`python -m tests.invariance.levels [--count 20] [--model smollm2]`: whether an answer has the
same bits with hearth's kernels compiled for each level that this processor has, best first.
Compiling them takes a minute each. Exit status 1: answers differ."""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernels import native
from kernels.native import build
from runner.types import GenerateRequest, LoadPlan, SamplingParams
from runner.worker.loader import load
from tests.invariance.cases import MODELS, case
from tests.real.models import path_of

CONTEXT = 512
SAMPLED = ("temperature", "top_k", "top_p", "min_p", "typical_p", "mirostat", "seed",
           "presence_penalty", "frequency_penalty")  # fmt: skip


def answers(level: str, libraries: Path, model: str, count: int) -> list[str]:
    """The fingerprints of answers with the kernels of a level, which are compiled. For a process of
    its own: llama.cpp keeps the first kernels that it is given."""
    native.FOLDER = libraries / level
    native.level = lambda: level  # type: ignore[assignment]
    recipe = build.RECIPES["llamacpp"]()
    assert recipe is not None
    build.build(recipe)
    path = str(path_of(model))
    runtime = load(
        LoadPlan(path, "llamacpp", CONTEXT, CONTEXT, max_sequences=2), lambda _share: None
    )
    found = []
    for number in range(count):
        body = case(number).body
        sampling = SamplingParams(
            logprobs=2, **{name: body[name] for name in SAMPLED if name in body}
        )
        request = GenerateRequest(
            str(number), sampling, text=body["prompt"], max_tokens=body["max_tokens"]
        )
        runtime.engine.submit(request, runtime.prompts.encode(request))
        told = hashlib.sha256()
        while runtime.engine.busy:
            outcome = runtime.engine.step()
            assert not outcome.errors
            for _, delta in outcome.deltas:
                told.update(repr((delta.text, delta.logprobs)).encode())
        found.append(told.hexdigest()[:16])
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the levels, and tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.invariance.levels")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--model", choices=MODELS, default="smollm2")
    parser.add_argument("--only", nargs=2, metavar=("LEVEL", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.only:
        level, folder = given.only
        print(json.dumps(answers(level, Path(folder), given.model, given.count)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        own = ("--count", str(given.count), "--model", given.model, "--only")
        found = {}
        for level in native.levels():
            command = [sys.executable, "-m", "tests.invariance.levels", *own, level, folder]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            found[level] = json.loads(done.stdout.splitlines()[-1])
            best = next(iter(found))
            same = sum(a == b for a, b in zip(found[best], found[level], strict=True))
            print(f"{given.model}, {level}: {same} of {given.count} as {best}", flush=True)
    return 0 if len({tuple(each) for each in found.values()}) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
