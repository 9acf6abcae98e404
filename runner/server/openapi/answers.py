"""What the answers look like, for the description only: no answer is built from these.

A test compares them with what the daemon really answers. Fields that are not listed may come too.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class ResponseModel(BaseModel):
    """The base of all answers. Their schemas are built when somebody asks for the description."""

    model_config = ConfigDict(extra="allow", defer_build=True)


class OllamaError(ResponseModel):
    """An error of Ollama's and hearth's own paths."""

    error: str
    code: str


class OpenAIErrorBody(ResponseModel):
    """error of OpenAI's errors."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(ResponseModel):
    """An error of OpenAI's paths."""

    error: OpenAIErrorBody


class AnthropicErrorBody(ResponseModel):
    """error of Anthropic's errors."""

    type: str
    message: str
    code: str


class AnthropicError(ResponseModel):
    """An error of Anthropic's paths."""

    type: Literal["error"]
    error: AnthropicErrorBody


class StatusResponse(ResponseModel):
    """What came of it."""

    status: str


class VersionResponse(ResponseModel):
    """Who answers."""

    version: str
    name: str
    pid: int
    store: str
    read_only: bool
    uptime_s: float


class KeyEntry(ResponseModel):
    """A key, which cannot be read back."""

    name: str
    scopes: list[str]
    created_at: Any


class KeyList(ResponseModel):
    """All keys."""

    keys: list[KeyEntry]


class CreatedKey(ResponseModel):
    """A key, the only time that it is shown."""

    name: str
    scopes: list[str]
    key: str


class RemovedKey(ResponseModel):
    """A key that is no more."""

    name: str
    removed: bool


class ApplyTemplateResponse(ResponseModel):
    """The prompt of a conversation."""

    prompt: str


class TokenPiece(ResponseModel):
    """A token and its text: a string, or bytes that are no UTF-8 alone."""

    id: int
    piece: str | list[int]


class TokenizeResponse(ResponseModel):
    """The tokens of a text."""

    count: int
    max_model_len: int
    tokens: list[int] | list[TokenPiece]
    token_strs: list[Any] | None


class DetokenizeResponse(ResponseModel):
    """The text of tokens, under the names of both servers."""

    prompt: str
    content: str


class RerankResult(ResponseModel):
    """A document's place."""

    index: int
    relevance_score: float
    document: dict[str, str] | None = None


class RerankResponse(ResponseModel):
    """Documents, the nearest first."""

    id: str
    model: str
    results: list[RerankResult]
    usage: dict[str, int]


class PairScore(ResponseModel):
    """How near two texts are."""

    index: int
    object: Literal["score"]
    score: float


class ScoreResponse(ResponseModel):
    """One score for each pair."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[PairScore]
    usage: dict[str, int]


class ModelSpace(ResponseModel):
    """The bytes of one model; own: that only it uses."""

    name: str
    size: int
    own: int
    shared: int


class DiskUsageResponse(ResponseModel):
    """What the store takes, in bytes."""

    models: list[ModelSpace]
    blobs: int
    unused: int
    total: int
    free: int | None = None


class RemovedFile(ResponseModel):
    """A file that is gone, or would be."""

    path: str
    size: int


class GcResponse(ResponseModel):
    """What was removed, in bytes."""

    blobs: list[RemovedFile]
    partials: list[RemovedFile]
    size: int
    dry_run: bool
