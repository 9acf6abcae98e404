"""Greedy answers of published models and the numbers behind them, beside llama-cpp-python's.

Activations are rounded to 8 bits, by hearth's kernels as by llama.cpp's, and any other order of
additions makes some of them another byte in the next layer: llama.cpp differs from itself when it
computes in batches. Both are therefore measured by what the same weights come to in float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.real.conftest import AskOracle, Model, require
from tests.real.control import Control, log_softmax

LENGTH, TOP = 32, 20
CLOSE_LOGITS = 1e-2  # between the two likeliest, where another kernel may choose otherwise
CLOSE_LOGPROBS = 2e-2
WORSE = 1.1  # times the distance from float32 that llama.cpp has
QUESTIONS = (
    "What is the capital of France?",
    "Name three colours of the rainbow.",
    "Why is the sky blue?",
    "Write a Python function that adds two numbers.",
    "What does HTTP stand for?",
    "Translate 'good morning' into Spanish.",
    "How many legs does a spider have?",
    "Write a haiku about the sea.",
    "What is 17 plus 25?",
    "Who wrote Romeo and Juliet?",
    "Explain what a hash table is in one sentence.",
    "Write a SQL query that counts the rows of the table users.",
    "What is the boiling point of water in degrees Celsius?",
    "List the prime numbers below 20.",
    "What is the opposite of cold?",
    "Give me a recipe for pancakes.",
    "Wie heißt die Hauptstadt von Österreich?",
    "Reverse the string 'hearth'.",
    "Is a tomato a fruit or a vegetable?",
    'Write a JSON object with the keys "name" and "age".',
)

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Answer:
    """llama.cpp's. logits: those that each token was chosen from; likeliest [tokens, TOP]: the
    likeliest tokens there. logprobs, again and exact: the log-probabilities of these by llama.cpp
    step by step, in one batch, and in float32 by transformers; best: the likeliest there."""

    prompt: list[int]
    tokens: list[int]
    logits: NDArray[np.float32]
    likeliest: NDArray[np.int64]
    logprobs: NDArray[np.float64]
    again: NDArray[np.float64]
    exact: NDArray[np.float64]
    best: list[int]


@pytest.fixture(
    scope="module", params=["smollm2", "gemma3-270m", "qwen-coder-0.5b", "qwen-coder-1.5b"]
)
def name(request: pytest.FixtureRequest) -> str:
    require(request.param)
    return str(request.param)


@pytest.fixture(scope="module")
def answers(http: httpx.Client, installed: Model, ask_oracle: AskOracle, name: str) -> list[Answer]:
    model, sequences, computed = installed(name), [], []
    with closing(Control(require(name))) as control:
        for question in QUESTIONS:
            prompt = tokens_of(http, model, question)
            tokens, logits = control.greedy(prompt, LENGTH)
            likeliest = np.argpartition(logits, -TOP)[:, -TOP:]
            batch = control.logits(prompt + tokens)[len(prompt) - 1 : -1]
            of_rows = [
                np.take_along_axis(log_softmax(rows), likeliest, 1) for rows in (logits, batch)
            ]
            computed.append((prompt, tokens, logits, likeliest, *of_rows))
            sequences.append({"prompt": prompt, "tokens": tokens, "asked": likeliest.tolist()})
    exact = ask_oracle("logprobs", path=str(require(name)), sequences=sequences)
    return [
        Answer(*parts, np.array(found["values"]), found["best"])
        for parts, found in zip(computed, exact, strict=True)
    ]


def tokens_of(http: httpx.Client, model: str, question: str) -> list[int]:
    """The prompt; of a base model, which has no template, the question alone."""
    content = http.post("/api/show", json={"model": model}).json()
    if "tokenizer.chat_template" in content["model_info"]:
        asked = {"messages": [{"role": "user", "content": question}]}
    else:
        asked = {"prompt": question}
    tokens: list[int] = http.post("/tokenize", json={"model": model, **asked}).json()["tokens"]
    return tokens


def complete(http: httpx.Client, model: str, prompt: list[int], **fields: object) -> dict:
    body = {"model": model, "prompt": prompt, "temperature": 0, "return_token_ids": True}
    answer = http.post("/v1/completions", json={**body, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


@pytest.mark.parametrize("backend", ["llamacpp", "torch"])
def test_greedy_answers_differ_from_those_of_llamacpp_where_it_is_undecided(
    http: httpx.Client, installed: Model, name: str, answers: Sequence[Answer], backend: str
) -> None:
    model, gaps = installed(name, backend), []
    for question, answer in zip(QUESTIONS, answers, strict=True):
        choice = complete(http, model, answer.prompt, max_tokens=LENGTH)
        pairs = enumerate(zip(choice["token_ids"], answer.tokens, strict=False))
        place = next((at for at, (found, wanted) in pairs if found != wanted), None)
        if place is not None:
            row = answer.logits[place]
            gaps.append(float(row.max() - row[choice["token_ids"][place]]))
            print(f"{model}, {question!r}: token {place} differs, logits by {gaps[-1]:.4f}")
    bound = max(
        CLOSE_LOGITS, float(np.max([distances(a.logprobs, a.exact).max() for a in answers]))
    )
    print(f"{model}: {len(answers) - len(gaps)} of {len(answers)} answers are the same,"
          f" {sum(gap < CLOSE_LOGITS for gap in gaps)} differ by logits within {CLOSE_LOGITS};"
          f" llama.cpp itself is up to {bound:.4f} from float32")  # fmt: skip
    assert max(gaps, default=0.0) < bound


@pytest.mark.parametrize("backend", ["llamacpp", "torch"])
def test_log_probabilities_are_as_exact_as_those_of_llamacpp(
    http: httpx.Client, installed: Model, name: str, answers: Sequence[Answer], backend: str
) -> None:
    model = installed(name, backend)
    found, agreed = [], 0
    for answer in answers:
        prompt = answer.prompt + answer.tokens
        choice = complete(http, model, prompt, max_tokens=0, echo=True, prompt_logprobs=TOP)
        scored = choice["prompt_logprobs"][len(answer.prompt) :]
        found.append(np.array([
            of_tokens(each, tokens) for each, tokens in zip(scored, answer.likeliest, strict=True)
        ]))  # fmt: skip
        best = [int(max(each, key=lambda token: each[token]["logprob"])) for each in scored]
        agreed += sum(left == right for left, right in zip(best, answer.best, strict=True))
    exact = np.concatenate([answer.exact for answer in answers])
    llamacpp = np.concatenate([answer.logprobs for answer in answers])
    ours = distances(np.concatenate(found), exact)
    theirs = distances(llamacpp, exact)
    same = sum(np.sum(np.array(answer.tokens) == answer.best) for answer in answers)
    print(f"{model} and float32: {shown(ours)}; the same token {agreed / len(exact):.2%}")
    print(f"llama.cpp and float32: {shown(theirs)}; the same token {same / len(exact):.2%}")
    again = np.concatenate([answer.again for answer in answers])
    print(f"llama.cpp and llama.cpp in a batch: {shown(distances(again, llamacpp))}")
    print(f"{model} and llama.cpp: {shown(distances(np.concatenate(found), llamacpp))}")
    assert ours.mean() < max(CLOSE_LOGPROBS, WORSE * theirs.mean())
    assert ours.max() < max(CLOSE_LOGPROBS, 2 * theirs.max())


def of_tokens(found: Mapping[str, Mapping[str, float]], tokens: NDArray[np.int64]) -> list[float]:
    """The log-probabilities of the tokens; NaN of one that is not among those told."""
    unknown = {"logprob": math.nan}
    return [found.get(str(token), unknown)["logprob"] for token in tokens.tolist()]


def distances(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Between log-probabilities; most of them must be known."""
    apart = np.abs(left - right)
    known = apart[~np.isnan(apart)]
    assert len(known) > 0.9 * apart.size
    return known


def shown(apart: NDArray[np.float64]) -> str:
    return (
        f"mean {apart.mean():.4f}, p99 {np.quantile(apart, 0.99):.4f}, max {apart.max():.4f},"
        f" within {CLOSE_LOGPROBS} {np.mean(apart < CLOSE_LOGPROBS):.1%}"
    )
