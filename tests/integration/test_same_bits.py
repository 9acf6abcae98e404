"""With hearth's kernels an answer has the same numbers alone and among others, down to the bits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from kernels import native

pytestmark = pytest.mark.skipif(
    native.library_path("llamacpp") is None, reason="no kernels were compiled here"
)

QUESTIONS = (
    "What is 348 + 77?",
    "Reverse the word garden.",
    "Tell me a story about a lighthouse and a boat that came home late.",
    "Spell hearth.",
    "What can you do?",
    "Which day comes after Monday?",
    "Tell me a story.",
    "How many letters has the word lantern?",
)


def answer(client: httpx.Client, question: str, **fields: Any) -> list[Any]:
    """Each token of an answer with its log-probability and its two best alternatives."""
    body = {
        "model": "ember",
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 60,
        "logprobs": True,
        "top_logprobs": 2,
        **fields,
    }
    sent = client.post("/v1/chat/completions", json=body)
    assert sent.status_code == 200, sent.text
    return list(sent.json()["choices"][0]["logprobs"]["content"])


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.0, "seed": 7}])
def test_an_answer_does_not_depend_on_what_else_is_answered(
    client: httpx.Client, sampling: dict[str, Any]
) -> None:
    alone = [answer(client, question, **sampling) for question in QUESTIONS]
    with ThreadPoolExecutor(3 * len(QUESTIONS)) as pool:
        # the same ones too, which share what is computed, with prompts of others between them
        asked = [(place, question) for _ in range(3) for place, question in enumerate(QUESTIONS)]
        among = list(pool.map(lambda item: answer(client, item[1], **sampling), asked))
    for (place, _), found in zip(asked, among, strict=True):
        assert found == alone[place]
