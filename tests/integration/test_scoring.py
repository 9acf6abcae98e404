"""POST /v1/rerank and /v1/score through a real daemon."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

DOCUMENTS = ["zzz qqq", "the fire in the hearth", {"text": "a fire"}]


def test_the_document_that_is_the_query_comes_first(client: httpx.Client) -> None:
    body = {"model": "echo", "query": "the fire in the hearth", "documents": DOCUMENTS}
    for path in ("/v1/rerank", "/rerank"):
        answer = client.post(path, json=body).json()
        first, *others = answer["results"]
        assert (first["index"], first["document"]["text"]) == (1, "the fire in the hearth")
        assert first["relevance_score"] == pytest.approx(1.0, abs=1e-5)
        scores = [each["relevance_score"] for each in answer["results"]]
        assert scores == sorted(scores, reverse=True)
        assert {each["index"] for each in others} == {0, 2}
        assert answer["usage"]["prompt_tokens"] > 0


def test_only_so_many_and_without_their_texts(client: httpx.Client) -> None:
    asked = {"top_n": 2, "return_documents": False}
    body = {"model": "echo", "query": "a fire", "documents": DOCUMENTS, **asked}
    results = client.post("/v1/rerank", json=body).json()["results"]
    assert [set(each) for each in results] == [{"index", "relevance_score"}] * 2


def test_one_text_is_compared_with_each_and_several_in_pairs(client: httpx.Client) -> None:
    one = client.post(
        "/v1/score", json={"model": "echo", "text_1": "abc", "text_2": ["abc", "xyz"]}
    ).json()
    assert one["data"][0]["score"] == pytest.approx(1.0, abs=1e-5)
    assert one["data"][1]["score"] < 0.99
    pairs = client.post(
        "/score", json={"model": "echo", "text_1": ["abc", "xyz"], "text_2": ["abc", "xyz"]}
    ).json()
    assert [each["score"] for each in pairs["data"]] == pytest.approx([1.0, 1.0], abs=1e-5)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/rerank", {"query": "a", "documents": []}),
        ("/v1/rerank", {"query": "", "documents": ["a"]}),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": 0}),
        ("/v1/rerank", {"query": "a", "documents": ["a"] * 3000}),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["c"]}),
        ("/v1/score", {"text_1": "", "text_2": ["c"]}),
    ],
)
def test_what_makes_no_sense_is_refused(
    client: httpx.Client, path: str, fields: dict[str, Any]
) -> None:
    assert client.post(path, json={"model": "echo", **fields}).status_code == 400
