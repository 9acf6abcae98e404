"""ember on both backends through a real daemon: PARAMETER backend torch, the same answers."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from gguf import GGUFReader
from gguf.quants import dequantize

from tests.conftest import RunningDaemon

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

QUESTIONS = ("What is hearth?", "What is 12 + 7?", "Spell the word fire.")
GREEDY = {"temperature": 0, "num_predict": 48}


@pytest.fixture
def client(torch_daemon: RunningDaemon) -> Iterator[httpx.Client]:
    with torch_daemon.client() as http:
        yield http


@pytest.fixture(scope="module", autouse=True)
def torch_model(torch_daemon: RunningDaemon) -> None:
    """Made once: a model that is made again has another worker."""
    body = {
        "model": "glow",
        "from": "ember",
        "parameters": {"backend": "torch", "num_ctx": 512, "num_parallel": 4},
        "stream": False,
    }
    with torch_daemon.client() as client:
        created = client.post("/api/create", json=body)
    assert created.status_code == 200, created.text


def answer(client: httpx.Client, model: str, text: str, **options: Any) -> dict[str, Any]:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "stream": False,
        "options": {**GREEDY, **options},
    }
    response = client.post("/api/chat", json=body, timeout=60)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_ember_gives_the_same_greedy_answers_on_both_backends(client: httpx.Client) -> None:
    for question in QUESTIONS:
        left, right = (answer(client, model, question) for model in ("glow", "ember"))
        assert left["message"]["content"] == right["message"]["content"] != ""
        assert left["prompt_eval_count"] == right["prompt_eval_count"]


def test_a_conversation_is_not_computed_again_and_can_be_cut_by_a_schema(
    client: httpx.Client,
) -> None:
    messages = [{"role": "user", "content": "Tell me about " + "hearth and fire " * 12}]
    body: dict[str, Any] = {"model": "glow", "messages": messages, "temperature": 0}
    body |= {"max_tokens": 32}
    first = client.post("/v1/chat/completions", json=body, timeout=60).json()
    again = client.post("/v1/chat/completions", json=body, timeout=60).json()
    assert again["choices"][0]["message"] == first["choices"][0]["message"]
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= again["usage"]["prompt_tokens"] - 1
    choice = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["x", "y"]}}}
    found = client.post(
        "/v1/chat/completions", json={**body, "response_format": choice}, timeout=60
    ).json()
    assert found["choices"][0]["message"]["content"] in ('"x"', '"y"')


@pytest.mark.parametrize("model", ["glow", "ember"])
def test_tokens_are_limited_on_both_backends(client: httpx.Client, model: str) -> None:
    def text(**fields: Any) -> str:
        body = {"model": model, "prompt": "A warm fire", "max_tokens": 24, "temperature": 0}
        body["ignore_eos"] = True
        response = client.post("/v1/completions", json=body | fields, timeout=60)
        assert response.status_code == 200, response.text
        return str(response.json()["choices"][0]["text"])

    free = text()
    assert len(free) > 8
    tokens = client.post("/tokenize", json={"model": model, "content": free}).json()["tokens"]
    assert text(stop_token_ids=[tokens[1]]) == client.post(
        "/detokenize", json={"model": model, "tokens": tokens[:1]}
    ).json()["content"]  # fmt: skip

    def ids(**fields: Any) -> list[int]:
        body = {"model": model, "prompt": "A warm fire", "max_tokens": 24, "temperature": 0}
        body |= {"ignore_eos": True, "return_token_ids": True}
        answer = client.post("/v1/completions", json=body | fields, timeout=60).json()
        found: list[int] = answer["choices"][0]["token_ids"]
        return found

    piece = client.post("/detokenize", json={"model": model, "tokens": tokens[2:3]}).json()
    assert tokens[2] in ids()
    assert tokens[2] not in ids(bad_words=[piece["content"]])
    allowed = set(tokens[:3])
    assert set(ids(allowed_token_ids=sorted(allowed))) <= allowed
    assert len(ids(stop_token_ids=[tokens[0]], min_tokens=6, ignore_eos=False)) >= 6
    pairs = ids(allowed_token_ids=sorted(allowed), no_repeat_ngram_size=2, max_tokens=5)
    assert len(set(pairwise(pairs))) == len(pairs) - 1
    assert text(samplers=["temperature", "top_k"], temperature=0.01, top_k=1) == free


def embedded(text_tokens: list[int]) -> Any:
    """What ember makes of tokens before its first layer, [tokens, width]."""
    import torch

    file = Path(__file__).parents[2] / "registry/builtin/ember/ember.gguf"
    (tensor,) = [t for t in GGUFReader(file).tensors if t.name == "token_embd.weight"]
    return torch.from_numpy(dequantize(tensor.data, tensor.tensor_type)[text_tokens].copy())


def test_an_embedded_prompt_gives_the_answer_of_its_tokens(client: httpx.Client) -> None:
    import torch
    from safetensors.torch import save

    body = {"model": "glow", "max_tokens": 16, "temperature": 0, "return_token_ids": True}
    prompt = "Tell me about hearth and fire. " * 30  # more than one part
    plain = client.post("/v1/completions", json={**body, "prompt": prompt}, timeout=60).json()
    (wanted,) = plain["choices"]
    vectors = embedded(wanted.pop("prompt_token_ids"))
    del body["return_token_ids"]
    saved = io.BytesIO()
    torch.save(vectors, saved)
    other = embedded(client.post("/tokenize", json={"model": "glow", "content": "Rain"}).json()[
        "tokens"] * 40)  # fmt: skip
    answers = []
    for data in (saved.getvalue(), save({"x": other}), save({"x": vectors})):
        sent = {**body, "prompt_embeds": base64.b64encode(data).decode()}
        answer = client.post("/v1/completions", json=sent, timeout=60)
        assert answer.status_code == 200, answer.text
        answers.append(answer.json()["choices"][0]["text"])
    assert answer.json()["usage"]["prompt_tokens"] == len(vectors)
    assert answers[0] == answers[2] == wanted["text"] != answers[1]
    narrow = base64.b64encode(save({"x": vectors[:, :4].contiguous()})).decode()
    for wrong in ("no base64!", base64.b64encode(b"PK").decode(), narrow):
        refused = client.post("/v1/completions", json={**body, "prompt_embeds": wrong})
        assert refused.status_code == 400
        assert "prompt_embeds" in refused.json()["error"]["message"]
    on_llamacpp = client.post("/v1/completions", json={**sent, "model": "ember"}, timeout=60)
    assert on_llamacpp.status_code == 400
    assert "backend torch" in on_llamacpp.json()["error"]["message"]
