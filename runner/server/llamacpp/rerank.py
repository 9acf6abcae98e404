"""POST /v1/rerank and /v1/score, also without /v1: how near texts are to each other, in the words
of Jina, Cohere and vLLM.

With an embedding model the score is the cosine of the two vectors, as vLLM has it. Rerankers
(cross-encoders) read both texts at once; theirs is a probability.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from runner.errors import InvalidRequest
from runner.models.lease import Lease
from runner.server.caller import current_caller
from runner.server.embedding_inputs import MAX_INPUTS
from runner.server.http_request import HttpRequest
from runner.server.ids import new_id
from runner.server.leases import embeddings_of, leased, require_embedding
from runner.server.llamacpp.answers import (
    PairScore,
    RerankResponse,
    RerankResult,
    ScoreResponse,
    TeiScore,
)
from runner.server.request_body import WireModel
from runner.server.routes import route
from runner.turns import one_by_one


class RerankDocument(WireModel):
    """A document with its text."""

    text: str


Documents = Annotated[list[str | RerankDocument], Field(min_length=1, max_length=MAX_INPUTS - 1)]


class RerankRequest(WireModel):
    """POST /v1/rerank. texts in the place of documents: the answer is a list of scores, as that of
    Text Embeddings Inference."""

    model: str = Field(min_length=1)
    query: str = Field(min_length=1)
    documents: Documents | None = None
    texts: Documents | None = None
    top_n: int | None = Field(None, ge=1)
    return_documents: bool | None = None
    return_text: bool = False  # with texts
    truncate: bool = False
    keep_alive: Any = None


class ScoreRequest(WireModel):
    """POST /v1/score. One text in text_1 is compared with each in text_2; several go in pairs."""

    model: str = Field(min_length=1)
    text_1: str | list[str]
    text_2: str | list[str]
    truncate: bool = False
    keep_alive: Any = None


@route("POST", "/v1/rerank", "/rerank", "/reranking", "/v1/reranking", scope="inference")
async def rerank(http: HttpRequest, body: RerankRequest) -> RerankResponse | list[TeiScore]:
    """Rank documents, the nearest to the query first."""
    given = body.texts or body.documents
    if given is None or (body.texts and body.documents):
        raise InvalidRequest("send exactly one of documents and texts", param="documents")
    texts = [each if isinstance(each, str) else each.text for each in given]
    async with leased(http, body.model, body.keep_alive) as lease:
        scores, tokens = await _scores(lease, [body.query], texts, body.truncate)
    order = sorted(range(len(texts)), key=lambda index: -scores[index])[: body.top_n]
    if body.texts:
        found = [TeiScore(index=index, score=scores[index]) for index in order]
        if body.return_text:
            found = [{**item, "text": texts[item["index"]]} for item in found]
        return found
    results = [RerankResult(index=index, relevance_score=scores[index]) for index in order]
    if body.return_documents is not False:
        for result in results:
            result["document"] = {"text": texts[result["index"]]}
    return RerankResponse(
        id=new_id("rerank"), model=body.model, results=results, usage=_usage(tokens)
    )


@route("POST", "/v1/score", "/score", scope="inference")
async def score(http: HttpRequest, body: ScoreRequest) -> ScoreResponse:
    """Score each pair of texts."""
    left, right = _texts(body.text_1, "text_1"), _texts(body.text_2, "text_2")
    if len(left) != len(right) and len(left) != 1:
        raise InvalidRequest(
            f"text_1 has {len(left)} texts and text_2 {len(right)}: give one, or the same number",
            param="text_1",
        )
    if len(left) + len(right) > MAX_INPUTS:
        raise InvalidRequest(f"more than {MAX_INPUTS} texts", param="text_2")
    async with leased(http, body.model, body.keep_alive) as lease:
        scores, tokens = await _scores(lease, left, right, body.truncate)
    return ScoreResponse(
        id=new_id("score"),
        object="list",
        created=int(time.time()),
        model=body.model,
        data=[
            PairScore(index=index, object="score", score=value)
            for index, value in enumerate(scores)
        ],
        usage=_usage(tokens),
    )


async def _scores(
    lease: Lease, left: Sequence[str], right: Sequence[str], truncate: bool
) -> tuple[list[float], int]:
    """The score of each text of right with the one beside it in left, or the only one there, and
    the tokens they cost. truncate: of what is too long the end is not read. Raises Unsupported,
    ContextOverflow."""
    if lease.plan.ranking:
        firsts = left if len(left) == len(right) else list(left) * len(right)
        pairs, client = list(zip(firsts, right, strict=True)), current_caller().share
        result = await lease.worker.rank(pairs, truncate=truncate, client=client)
        return [vector[0] for vector in result.vectors], result.prompt_tokens
    require_embedding(lease, trained=True)
    result = await embeddings_of(lease, [*left, *right], truncate=truncate)
    known, others = result.vectors[: len(left)], result.vectors[len(left) :]
    if len(known) == 1:
        known = known * len(others)
    scores = await one_by_one(_cosine, zip(known, others, strict=True))
    return scores, result.prompt_tokens


def _texts(given: str | list[str], where: str) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not texts or not all(texts):
        raise InvalidRequest(f"{where} is empty or contains an empty string", param=where)
    return texts


def _cosine(both: tuple[Sequence[float], Sequence[float]]) -> float:
    """Of vectors of length 1."""
    return sum(a * b for a, b in zip(*both, strict=True))


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": tokens, "total_tokens": tokens}
