"""The perplexity of a fixed text under published weights: hearth's kernels, torch, llama.cpp."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.real.conftest import Model, require
from tests.real.control import CONTEXT, Control, log_softmax

TEXT = Path(__file__).with_name("text.txt").read_text("ascii")
TEXT_DIGEST = "2fadd7c9ae2fa9f06d32e3c2e226136b57e6984a2c719296c2fe5c32a61a6b61"
WITHIN = 0.005
FIRST = CONTEXT // 2  # the second half of each chunk is scored, as llama-perplexity does

pytestmark = pytest.mark.slow


@pytest.fixture(
    scope="module", params=["smollm2", "gemma3-270m", "qwen-coder-0.5b", "qwen-coder-1.5b"]
)
def name(request: pytest.FixtureRequest) -> str:
    require(request.param)
    return str(request.param)


@pytest.fixture(scope="module")
def control(name: str) -> Iterator[Control]:
    found = Control(require(name))
    yield found
    found.close()


@pytest.fixture(scope="module")
def chunks(control: Control) -> list[list[int]]:
    """The text in pieces of a context; where the model wants a BOS, it takes the first place."""
    assert hashlib.sha256(TEXT.encode()).hexdigest() == TEXT_DIGEST
    tokens, found = control.tokens(TEXT), []
    for start in range(0, len(tokens) - CONTEXT + 1, CONTEXT):
        chunk = tokens[start : start + CONTEXT]
        found.append(chunk if control.bos is None else [control.bos, *chunk[1:]])
    return found


@pytest.fixture(scope="module")
def wanted(control: Control, chunks: list[list[int]]) -> float:
    """llama.cpp's."""
    losses: list[float] = []
    for chunk in chunks:
        rows = log_softmax(control.logits(chunk)[FIRST:-1])
        losses += rows[np.arange(len(rows)), chunk[FIRST + 1 :]].tolist()
    return perplexity(losses)


def perplexity(logprobs: Sequence[float]) -> float:
    return math.exp(-math.fsum(logprobs) / len(logprobs))


@pytest.mark.parametrize("backend", ["llamacpp", "torch"])
def test_the_perplexity_is_that_of_llamacpp(
    http: httpx.Client,
    installed: Model,
    name: str,
    chunks: list[list[int]],
    wanted: float,
    backend: str,
) -> None:
    model = installed(name, backend)
    losses: list[float] = []
    for chunk in chunks:
        body = {"model": model, "prompt": chunk, "max_tokens": 0, "echo": True, "logprobs": 0}
        answer = http.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        losses += answer.json()["choices"][0]["logprobs"]["token_logprobs"][FIRST + 1 : CONTEXT]
    found = perplexity(losses)
    print(f"{model}: {found:.4f}, llama.cpp {wanted:.4f}, ratio {found / wanted:.5f}")
    assert len(losses) == (CONTEXT - FIRST - 1) * len(chunks)
    assert found == pytest.approx(wanted, rel=WITHIN)


def test_eval_measures_the_same(
    http: httpx.Client, installed: Model, name: str, wanted: float
) -> None:
    body = {"model": installed(name), "text": TEXT, "context": CONTEXT, "stream": False}
    answer = http.post("/api/eval", json=body)
    assert answer.status_code == 200, answer.text
    found = answer.json()["perplexity"]
    print(f"hearth eval {name}: {found:.4f}, llama.cpp {wanted:.4f}")
    assert found == pytest.approx(wanted, rel=WITHIN)
