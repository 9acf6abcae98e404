"""POST /v1/rerank and /v1/score, also without /v1: how near texts are to each other, in the words
of Jina, Cohere and vLLM.

With an embedding model the score is the cosine of the two vectors, as vLLM has it. Cross-encoders,
which read both texts at once, are refused: their score is another one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from runner.errors import InvalidRequest, Unsupported
from runner.models.manager import Lease
from runner.server.asking import keep_alive_s, require_embedding
from runner.server.embedding import MAX_INPUTS
from runner.server.exchange import Exchange, WireModel
from runner.server.identity import new_id
from runner.types import Embeddings

_RANK = 4  # llama.cpp's LLAMA_POOLING_TYPE_RANK


class Document(WireModel):
    """A document with its text."""

    text: str


class RerankRequest(WireModel):
    """POST /v1/rerank."""

    model: str = Field(min_length=1)
    query: str = Field(min_length=1)
    documents: list[str | Document] = Field(min_length=1, max_length=MAX_INPUTS - 1)
    top_n: int | None = Field(None, ge=1)
    return_documents: bool | None = None
    keep_alive: Any = None


class ScoreRequest(WireModel):
    """POST /v1/score. One text in text_1 is compared with each in text_2; several go in pairs."""

    model: str = Field(min_length=1)
    text_1: str | list[str]
    text_2: str | list[str]
    keep_alive: Any = None


async def rerank(exchange: Exchange) -> None:
    """The documents, the nearest to the query first."""
    asked = await exchange.read(RerankRequest)
    texts = [each if isinstance(each, str) else each.text for each in asked.documents]
    told = await _embedded(exchange, asked.model, [asked.query, *texts], asked.keep_alive)
    query, *vectors = told.vectors
    scores = [_cosine(query, vector) for vector in vectors]
    order = sorted(range(len(texts)), key=lambda index: -scores[index])[: asked.top_n]
    shown = asked.return_documents is not False
    results = [
        {
            "index": index,
            "relevance_score": scores[index],
            **({"document": {"text": texts[index]}} if shown else {}),
        }
        for index in order
    ]
    await exchange.reply(
        {"id": new_id("rerank"), "model": asked.model, "results": results, "usage": _usage(told)}
    )


async def score(exchange: Exchange) -> None:
    """One score for each pair of texts."""
    asked = await exchange.read(ScoreRequest)
    left, right = _texts(asked.text_1, "text_1"), _texts(asked.text_2, "text_2")
    if len(left) != len(right) and len(left) != 1:
        raise InvalidRequest(
            f"text_1 has {len(left)} texts and text_2 {len(right)}: give one, or as many",
            param="text_1",
        )
    if len(left) + len(right) > MAX_INPUTS:
        raise InvalidRequest(f"more than {MAX_INPUTS} texts", param="text_2")
    told = await _embedded(exchange, asked.model, [*left, *right], asked.keep_alive)
    firsts, seconds = told.vectors[: len(left)], told.vectors[len(left) :]
    if len(firsts) == 1:
        firsts = firsts * len(seconds)
    data = [
        {"index": index, "object": "score", "score": _cosine(first, second)}
        for index, (first, second) in enumerate(zip(firsts, seconds, strict=True))
    ]
    answer = {"id": new_id("score"), "object": "list", "created": int(time.time())}
    await exchange.reply({**answer, "model": asked.model, "data": data, "usage": _usage(told)})


async def _embedded(
    exchange: Exchange, model: str, texts: list[str], keep_alive: Any
) -> Embeddings:
    manager = exchange.daemon.manager
    async with (
        exchange.cancelled_on_disconnect(),
        manager.lease(model, {}, keep_alive_s(keep_alive)) as lease,
    ):
        require_embedding(lease)
        _refuse_cross_encoder(lease)
        return await lease.worker.embed(texts, truncate=False)


def _refuse_cross_encoder(lease: Lease) -> None:
    if lease.bundle.header.architecture_value("pooling_type") == _RANK:
        raise Unsupported(
            f"{lease.bundle.name.short} is a cross-encoder, which is not supported yet; use an "
            "embedding model",
            param="model",
        )


def _texts(given: str | list[str], where: str) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not texts or not all(texts):
        raise InvalidRequest(f"{where} is empty or holds an empty text", param=where)
    return texts


def _cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Of vectors of length 1."""
    return sum(a * b for a, b in zip(left, right, strict=True))


def _usage(told: Embeddings) -> dict[str, int]:
    return {"prompt_tokens": told.prompt_tokens, "total_tokens": told.prompt_tokens}
