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


def test_control_tokens_in_a_text_count_when_special_tokens_are_wanted(ember: httpx.Client) -> None:
    counts = [
        ember.post(
            "/tokenize", json={"model": "ember", "content": "<|im_end|>", "add_special": on}
        ).json()["count"]
        for on in (True, False)
    ]
    assert counts[0] < counts[1]


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
