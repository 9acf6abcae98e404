"""A watermark is found in what published weights sample, and not in texts that people wrote."""

from __future__ import annotations

import httpx
import pytest

from runner.watermark import MARKED_Z, detect
from tests.conformance.sources import REPOSITORY
from tests.real.conftest import Model

ANSWERS = 100
TOKENS = 200
GAMMA = 0.25


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["llamacpp", "torch"])
def test_marked_answers_of_200_tokens_are_found(
    http: httpx.Client, installed: Model, backend: str
) -> None:
    model = installed("smollm2", backend)
    scores = []
    for number in range(ANSWERS if backend == "llamacpp" else 20):
        body = {"model": model, "prompt": f"A story of day {number}.\n\n", "max_tokens": TOKENS,
                "ignore_eos": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0,
                "seed": number, "watermark": True, "return_token_ids": True}  # fmt: skip
        tokens = http.post("/v1/completions", json=body).json()["choices"][0]["token_ids"]
        scores.append(detect(tokens, GAMMA).z_score)
    print(f"{backend}: z {min(scores):.1f} to {max(scores):.1f}")
    assert sum(score > MARKED_Z for score in scores) >= 0.95 * len(scores)


def test_the_texts_of_this_repository_are_not_found(http: httpx.Client, installed: Model) -> None:
    model = installed("smollm2")
    scores = []
    for path in sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]):
        body = {"model": model, "content": path.read_text("utf-8")}
        tokens = http.post("/tokenize", json=body).json()["tokens"]
        starts = range(0, len(tokens) - TOKENS, TOKENS // 4)
        scores += [detect(tokens[at : at + TOKENS], GAMMA).z_score for at in starts]
    print(f"{len(scores)} texts, z {min(scores):.1f} to {max(scores):.1f}")
    assert len(scores) > 1000
    assert sum(score > MARKED_Z for score in scores) <= 0.001 * len(scores)
