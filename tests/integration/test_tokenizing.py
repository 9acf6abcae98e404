"""POST /tokenize and /detokenize through a real daemon, on ember's vocabulary."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.conftest import running_daemon

TEXT = "Hello, wörld 🌍\n  twice"


@pytest.fixture(scope="module")
def ember(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with running_daemon(tmp_path_factory.mktemp("tokens"), ()) as daemon, daemon.client() as client:
        yield client


def test_a_text_and_back(ember: httpx.Client) -> None:
    body = {"model": "ember", "prompt": TEXT, "add_special_tokens": False}
    answer = ember.post("/tokenize", json=body).json()
    assert answer["count"] == len(answer["tokens"]) > 3
    assert answer["max_model_len"] >= 2048
    back = ember.post("/detokenize", json={"model": "ember", "tokens": answer["tokens"]}).json()
    assert back["prompt"] == back["content"] == TEXT


@pytest.mark.parametrize("kind", [{"prompt": "<|im_end|>", "add_special_tokens": False},
                                  {"content": "<|im_end|>"}])  # fmt: skip
def test_control_tokens_in_a_text_count_unless_the_client_says_otherwise(
    ember: httpx.Client, kind: dict[str, object]
) -> None:
    body = {"model": "ember", **kind}
    counts = [
        ember.post("/tokenize", json={**body, **special}).json()["count"]
        for special in ({}, {"parse_special": False})
    ]
    assert counts[0] == 1 < counts[1]


def test_the_tokens_around_texts_are_told(ember: httpx.Client) -> None:
    info = ember.get("/tokenizer_info", params={"model": "ember"}).json()
    shown = ember.post("/api/show", json={"model": "ember"}).json()
    assert info["chat_template"] == shown["template"]
    body = {"model": "ember", "prompt": info["eos_token"], "add_special_tokens": False}
    (token,) = ember.post("/tokenize", json=body).json()["tokens"]
    back = ember.post("/detokenize", json={"model": "ember", "tokens": [token]}).json()
    assert back["prompt"] == info["eos_token"]
    missing = ember.get("/tokenizer_info", params={"model": "absent"})
    assert missing.status_code == 404


def test_a_conversation_is_rendered_before(ember: httpx.Client) -> None:
    body = {"model": "ember", "messages": [{"role": "user", "content": "hi"}]}
    tokens = ember.post("/tokenize", json=body).json()["tokens"]
    prompt = ember.post("/apply-template", json=body).json()["prompt"]
    again = ember.post("/tokenize", json={"model": "ember", "prompt": prompt}).json()["tokens"]
    assert tokens == again


def test_pieces_in_both_notations(ember: httpx.Client) -> None:
    body = {"model": "ember", "content": "a b", "with_pieces": True}
    answer = ember.post("/tokenize", json=body).json()
    assert "".join(each["piece"] for each in answer["tokens"]) == "a b"
    assert answer["token_strs"] == [each["piece"] for each in answer["tokens"]]


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/tokenize", {"prompt": "a", "content": "b"}, "exactly one"),
        ("/tokenize", {}, "exactly one"),
        ("/detokenize", {"tokens": [10**9]}, "1000000000"),
        ("/detokenize", {"tokens": [-1]}, "-1"),
    ],
)
def test_what_makes_no_sense_is_refused(
    ember: httpx.Client, path: str, body: dict[str, object], named: str
) -> None:
    answer = ember.post(path, json={"model": "ember", **body})
    assert answer.status_code == 400
    assert named in answer.text
