"""/v1/completions with echo and logprobs: the prompt's own log-probabilities, as evaluation
harnesses ask for them."""

from __future__ import annotations

import json
import math
from typing import Any

import httpx
import pytest


def complete(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    body = {"model": "echo", "temperature": 0, "echo": True, "logprobs": 1, **fields}
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_prompt_comes_with_its_log_probabilities_before_those_of_the_answer(
    client: httpx.Client,
) -> None:
    choice = complete(client, prompt="wärm", max_tokens=3)["choices"][0]
    assert choice["text"] == "wärmwä"
    logprobs = choice["logprobs"]
    assert logprobs["tokens"][:3] == ["<|begin|>", "w", "\ufffd"]
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    assert all(value < 0 for value in logprobs["token_logprobs"][1:])
    assert logprobs["text_offset"][:6] == [0, 0, 1, 1, 2, 3]
    assert logprobs["text_offset"][6] == 4
    assert {len(column) for column in logprobs.values()} == {6 + 3}


def test_max_tokens_0_tells_of_the_prompt_only(client: httpx.Client) -> None:
    answer = complete(client, prompt=[[104, 105], [105, 104, 103]], max_tokens=0)
    texts = [choice["text"] for choice in answer["choices"]]
    counts = [len(choice["logprobs"]["tokens"]) for choice in answer["choices"]]
    assert (texts, counts) == (["hi", "ihg"], [2, 3])
    assert answer["usage"]["completion_tokens"] == 0
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}


def test_a_stream_gives_the_same_tokens_numbers_and_text(client: httpx.Client) -> None:
    asked = {"prompt": ["the fire", "warm"], "max_tokens": 4, "n": 2}
    whole = complete(client, **asked)["choices"]
    body = {"model": "echo", "temperature": 0, "echo": True, "logprobs": 1, "stream": True}
    lines = client.post("/v1/completions", json={**body, **asked}).text.split("\n\n")
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    for choice in whole:
        parts = [
            part for each in events for part in each["choices"] if part["index"] == choice["index"]
        ]
        assert "".join(part["text"] for part in parts) == choice["text"]
        for name, column in choice["logprobs"].items():
            told = [item for part in parts if part["logprobs"] for item in part["logprobs"][name]]
            assert told == column


def test_what_was_asked_before_takes_no_numbers_away(client: httpx.Client) -> None:
    prompt = "the same long prompt again and again"
    first, second = (complete(client, prompt=prompt, max_tokens=1) for _ in range(2))
    assert first["choices"] == second["choices"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_without_logprobs_echo_needs_no_numbers(client: httpx.Client) -> None:
    choice = complete(client, prompt="ab", logprobs=None, max_tokens=0)["choices"][0]
    assert (choice["text"], choice["logprobs"]) == ("ab", None)


def test_suffix_excludes_them(client: httpx.Client) -> None:
    body = {"model": "echo", "prompt": "a", "suffix": "b", "echo": True, "logprobs": 1}
    assert client.post("/v1/completions", json=body).status_code == 400


def test_ember_likes_a_real_sentence_better_than_the_same_words_shuffled(
    client: httpx.Client,
) -> None:
    def total(text: str) -> float:
        answer = complete(client, model="ember", prompt=text, max_tokens=1, logprobs=5)
        logprobs = answer["choices"][0]["logprobs"]
        numbers = logprobs["token_logprobs"][1:-1]
        for number, top in zip(numbers, logprobs["top_logprobs"][1:-1], strict=True):
            assert len(top) in (5, 6)
            assert number <= max(top.values()) <= 0
            assert sum(map(math.exp, top.values())) <= 1.0001
        return sum(numbers)

    words = "The capital of France is Paris and the capital of Italy is Rome"
    assert total(words) > total(" ".join(sorted(words.split())))


def test_a_prompt_of_several_chunks_gives_the_numbers_of_its_beginning(
    client: httpx.Client,
) -> None:
    """The first 64 tokens are the first chunk, which is computed alike whatever follows."""
    text = "The fire is warm. " * 60
    tokens = client.post("/tokenize", json={"model": "ember", "prompt": text}).json()["tokens"]

    def numbers(count: int) -> list[float]:
        asked = {"model": "ember", "prompt": tokens[:count], "max_tokens": 0}
        return list(complete(client, **asked)["choices"][0]["logprobs"]["token_logprobs"][1:])

    short, long = numbers(65), numbers(300)
    assert len(long) == 299
    assert long[:64] == pytest.approx(short, abs=1e-3)
    assert sum(long[-60:]) > sum(long[:60])  # what was read often is expected


def test_vllms_prompt_logprobs_name_tokens_by_their_ids(client: httpx.Client) -> None:
    answer = complete(client, prompt="hi", prompt_logprobs=2, logprobs=1, max_tokens=1)
    (choice,) = answer["choices"]
    first, second, third = choice["prompt_logprobs"]
    assert first is None
    assert [(id, item["decoded_token"], item["rank"]) for id, item in second.items()] == [
        ("104", "h", 2),
        ("105", "i", 1),
    ]
    logprobs = choice["logprobs"]
    assert third["105"]["logprob"] == logprobs["token_logprobs"][2]
    assert all(len(top) <= 2 for top in logprobs["top_logprobs"][1:])


def test_chats_take_them_too(client: httpx.Client) -> None:
    body = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}
    answer = client.post("/v1/chat/completions", json={**body, "prompt_logprobs": 0}).json()
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
    assert all(len(item) == 1 for item in answer["prompt_logprobs"][1:])
    assert "prompt_logprobs" not in client.post("/v1/chat/completions", json=body).json()
