"""What the routes of llama.cpp, vLLM and Jina answer."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict


class ApplyTemplateResponse(TypedDict):
    """The prompt of a conversation."""

    prompt: str


class TokenPiece(TypedDict):
    """A token and its text: a string, or bytes that are no UTF-8 alone."""

    id: int
    piece: str | list[int]


class TokenizeResponse(TypedDict):
    """The tokens of a text."""

    count: int
    max_model_len: int
    tokens: list[int] | list[TokenPiece]
    token_strs: list[Any] | None


class DetokenizeResponse(TypedDict):
    """The text of tokens, under the names of both servers."""

    prompt: str
    content: str


class RerankResult(TypedDict):
    """A document's place."""

    index: int
    relevance_score: float
    document: NotRequired[dict[str, str]]


class RerankResponse(TypedDict):
    """Documents, the nearest first."""

    id: str
    model: str
    results: list[RerankResult]
    usage: dict[str, int]


class PairScore(TypedDict):
    """How near two texts are."""

    index: int
    object: Literal["score"]
    score: float


class ScoreResponse(TypedDict):
    """One score for each pair."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[PairScore]
    usage: dict[str, int]


class LlamaCppTimings(TypedDict):
    """What an answer took. prompt_n: tokens of the prompt that were computed."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float


class InfillPart(TypedDict):
    """A piece of what stands between a prefix and a suffix."""

    index: int
    content: str
    tokens: list[int]
    id_slot: int
    stop: bool
    tokens_predicted: int


class InfillResponse(InfillPart):
    """The whole answer, or the end of a streamed one."""

    model: str
    tokens_evaluated: int
    tokens_cached: int
    generation_settings: dict[str, int | None]
    has_new_line: bool
    truncated: bool
    stop_type: Literal["eos", "limit", "word"]
    stopping_word: str
    timings: LlamaCppTimings
