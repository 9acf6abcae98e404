"""hearth's own kernels in llama.cpp: the same answers with and without, in a process of its own,
first all without, since what is registered stays."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels import native

pytestmark = pytest.mark.skipif(
    native.library_path("llamacpp") is None, reason="no kernels were compiled here"
)

PROGRAM = """
import ctypes, json, sys
from llama_cpp import llama_cpp as native
from runner.backends.backend import Row
from runner.backends.llamacpp import load
from runner.types import LoadPlan, SamplingParams

def told(path, kernels, texts):
    plan = LoadPlan(path, "llamacpp", 512, 1024, 8, threads=2, native_kernels=kernels)
    backend = load(plan, lambda share: None).backend
    params = SamplingParams(temperature=0, logprobs=20)
    samplers = [backend.create_sampler(params) for _ in texts]
    answers = []
    for step in range(5):
        rows = []
        for i, text in enumerate(texts):
            end = len(text) - 5 + step
            first = 0 if step == 0 else end - 1
            rows.append(Row(i, text[first:end], first, samplers[i]))
        answers += [dict(outcome.top) for outcome in backend.step(rows)]
    backend.close()
    return [devices(), answers]

def devices():
    name = native._lib.ggml_backend_dev_name
    name.restype, name.argtypes = ctypes.c_char_p, (ctypes.c_void_p,)
    get = native._lib.ggml_backend_dev_get
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    return [name(get(i)).decode() for i in range(native._lib.ggml_backend_dev_count())]

for asked in json.load(sys.stdin):
    print(json.dumps(told(*asked)))
"""
EMBER = Path("registry/builtin/ember/ember.gguf").resolve()
MADE = [(quantized, experts) for quantized in ("Q8_0", "Q4_0", "Q5_1") for experts in (0, 6)]
Told = tuple[list[str], list[dict[str, float]]]


@pytest.fixture(scope="module")
def answers(model_file: Callable[..., Path]) -> dict[Any, tuple[Told, Told]]:
    """For each model the devices that ggml knows, and the 20 best tokens with their
    log-probabilities after each of the last tokens of some texts: with the kernels and without."""
    models: dict[Any, tuple[Path, int]] = {
        made: (model_file(width=128, experts=made[1], quantized=made[0]), 270) for made in MADE
    }
    models["ember"] = EMBER, 4000
    random = np.random.default_rng(0)
    asked = [
        (str(path), [random.integers(5, tokens, length).tolist() for length in (40, 7, 6, 90, 21)])
        for path, tokens in models.values()
    ]
    every = [(path, kernels, texts) for kernels in (False, True) for path, texts in asked]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(every),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return dict(
        zip(models, zip(told[len(models) :], told[: len(models)], strict=True), strict=True)
    )


@pytest.mark.parametrize("model", [*MADE, "ember"], ids=str)
def test_a_model_answers_the_same_with_and_without(
    answers: dict[Any, tuple[Told, Told]], model: Any
) -> None:
    """Both ways round the columns to bytes, and neither is nearer to float32: the distance of
    ember's log-probabilities from that is 0.06 on average either way."""
    with_, without = answers[model]
    assert ("hearth" in with_[0], "hearth" in without[0]) == (True, False)
    apart = [
        abs(found[token] - expected[token])
        for found, expected in zip(with_[1], without[1], strict=True)
        for token in found.keys() & expected.keys()
    ]
    assert len(apart) > 0.75 * 20 * len(with_[1])
    assert np.mean(apart) < 0.15


BITS = """
import json, sys
from runner.backends.backend import Row
from runner.backends.llamacpp import load
from runner.types import LoadPlan, SamplingParams
texts = json.loads(sys.argv[1])

def sampler():
    return backend.create_sampler(SamplingParams(temperature=0, logprobs=20))

def numbers(rows):
    return {outcome.sequence: dict(outcome.top) for outcome in backend.step(rows)}

def compare(where):
    alone = []
    for text in texts:
        alone.append(numbers([Row(0, text, 0, sampler())])[0])
        backend.reset()
    together = numbers([Row(i, text, 0, sampler()) for i, text in enumerate(texts)])
    assert [together[i] for i in range(len(texts))] == alone, f"{where}, together"
    backend.reset()
    for i, text in enumerate(texts):  # token by token, while others are computed
        others = [Row(j, texts[j], 0) for j in range(i)]
        backend.step([*others, Row(7, text[:1], 0)])
        for at in range(1, len(text)):
            last = sampler() if at == len(text) - 1 else None
            found = numbers([Row(7, text[at : at + 1], at, last)])
        assert found[7] == alone[i], f"{where}, token by token {i}"
        backend.reset()

for path in sys.argv[2:]:
    for threads in (1, 2):
        plan = LoadPlan(path, "llamacpp", 512, 2048, 8, batch_tokens=512, threads=threads)
        backend = load(plan, lambda share: None).backend
        compare(f"{path} with {threads} threads")
        backend.close()
print("same")
"""


def test_an_answer_has_the_same_bits_whatever_is_computed_with_it(
    model_file: Callable[..., Path],
) -> None:
    experts = model_file(width=128, experts=6, quantized="Q8_0")
    random = np.random.default_rng(3)
    texts = [random.integers(5, 270, length).tolist() for length in (33, 7, 2, 60)]
    done = subprocess.run(
        [sys.executable, "-c", BITS, json.dumps(texts), str(EMBER), str(experts)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "same\n", done.stderr


THREADS = """
import hashlib, json, sys
from runner.backends.backend import Row
from runner.backends.llamacpp import load
from runner.types import LoadPlan, SamplingParams
path, texts, threads = json.loads(sys.argv[1])
plan = LoadPlan(path, "llamacpp", 1024, 2048, 4, batch_tokens=512, threads=threads)
backend = load(plan, lambda share: None).backend
sampler = backend.create_sampler(SamplingParams(temperature=0, logprobs=20))
seen = []
for text in texts:  # a prompt, then token by token, and a few together
    for at in range(0, len(text) - 30, 512):
        backend.step([Row(0, text[at : min(at + 512, len(text) - 30)], at)])
    for at in range(len(text) - 30, len(text) - 10):
        seen += backend.step([Row(0, text[at : at + 1], at, sampler)])
    seen += backend.step([Row(0, text[-10:], len(text) - 10, sampler)])
    backend.reset()
print([one.top for one in seen])
"""


@pytest.mark.parametrize("model", ["ember", "experts"])
def test_an_answer_has_the_same_bits_with_any_number_of_threads(
    model_file: Callable[..., Path], model: str
) -> None:
    path = EMBER if model == "ember" else model_file(width=128, experts=6, quantized="Q8_0")
    random = np.random.default_rng(4)
    texts = [random.integers(5, 270, length).tolist() for length in (60, 700)]
    found = [
        subprocess.run(
            [sys.executable, "-c", THREADS, json.dumps([str(path), texts, threads])],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        for threads in (1, 2, 3)
    ]
    assert len(found[0]) > 1000
    assert found[0] == found[1] == found[2]
