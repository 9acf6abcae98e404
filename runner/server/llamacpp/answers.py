"""What the routes of llama.cpp, vLLM and Jina answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from runner.server.timings import Timings


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


class TokenizerInfo(TypedDict):
    """What a client needs to write prompts itself, of vLLM's answer."""

    tokenizer_class: str
    bos_token: str | None
    eos_token: str | None
    chat_template: str | None


class DetokenizeResponse(TypedDict):
    """The text of tokens, under the names of both servers."""

    prompt: str
    content: str


class RerankResult(TypedDict):
    """A document's rank."""

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
    """The similarity of two texts."""

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


class TokenProbability(TypedDict):
    """A token with the logarithm of its probability, and the likeliest ones in its place."""

    id: int
    token: str
    bytes: list[int]
    logprob: float
    top_logprobs: NotRequired[list[TokenProbability]]


class DrawnProbability(TypedDict):
    """The same after the samplers, with post_sampling_probs."""

    id: int
    token: str
    bytes: list[int]
    prob: float
    top_probs: NotRequired[list[DrawnProbability]]


class NativePart(TypedDict):
    """A piece of an answer."""

    index: int
    content: str
    tokens: list[int]
    id_slot: int
    stop: bool
    tokens_predicted: int


class CompletionResponse(NativePart):
    """The whole answer, or the end of a streamed one."""

    model: str
    tokens_evaluated: int
    tokens_cached: int
    generation_settings: dict[str, Any]
    prompt: str
    has_new_line: bool
    truncated: bool
    stop_type: Literal["eos", "limit", "word"]
    stopping_word: str
    timings: Timings
    completion_probabilities: NotRequired[list[TokenProbability] | list[DrawnProbability]]


class Success(TypedDict):
    """The result of a request that has no other."""

    success: bool


class PropsResponse(TypedDict):
    """The model that is served, with its defaults; role router: there are several."""

    role: Literal["model", "router"]
    default_generation_settings: dict[str, Any]
    total_slots: int
    build_info: str
    is_sleeping: bool
    model_alias: NotRequired[str]
    model_path: NotRequired[str]
    modalities: NotRequired[dict[str, bool]]
    chat_template: NotRequired[str]
    chat_template_caps: NotRequired[dict[str, bool]]
    endpoint_slots: NotRequired[bool]
    endpoint_props: NotRequired[bool]
    endpoint_metrics: NotRequired[bool]
    max_instances: NotRequired[int]
    models_autoload: NotRequired[bool]


class SlotState(TypedDict):
    """One of the requests that a model answers concurrently."""

    id: int
    n_ctx: int
    speculative: bool
    is_processing: bool


class SlotChange(TypedDict):
    """The result of an action on a slot: tokens saved, restored or erased, and bytes of the
    file."""

    id_slot: int
    filename: NotRequired[str]
    n_saved: NotRequired[int]
    n_written: NotRequired[int]
    n_restored: NotRequired[int]
    n_read: NotRequired[int]
    n_erased: NotRequired[int]
    timings: NotRequired[dict[str, float]]


class NativeEmbedding(TypedDict):
    """The vectors of an input: one, or one for each token."""

    index: int
    embedding: Sequence[Sequence[float]]


class TeiScore(TypedDict):
    """A text's place, as Text Embeddings Inference has it."""

    index: int
    score: float
    text: NotRequired[str]


class StreamState(TypedDict):
    """An answer that can be resumed; times in seconds since 1970, 0 for not yet."""

    conversation_id: str
    is_done: bool
    total_bytes: int
    started_at: int
    completed_at: int


class AdapterState(TypedDict):
    """A LoRA adapter of a model."""

    id: int
    path: str
    scale: float
