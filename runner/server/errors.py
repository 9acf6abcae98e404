"""The one table from errors to HTTP status codes, and the error bodies of the surfaces.

Errors of the leaves become the runner's in runner.leaf_errors. An unexpected exception becomes a
plain 500 with a request id; its traceback goes to the log, never to a client.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic_core import to_json

from runner import errors as runner
from runner.leaf_errors import as_hearth_error
from runner.server.error_bodies import (
    AnthropicErrorBody,
    LlamaServerErrorBody,
    OllamaError,
    OpenAIErrorBody,
)

log = logging.getLogger("hearth.http")

_STATUS: dict[type[runner.HearthError], int] = {
    runner.ModelNotFound: 404,
    runner.KeyNotFound: 404,
    runner.ResponseNotFound: 404,
    runner.McpServerNotFound: 404,
    runner.RegistryDenied: 403,
    runner.RegistryUnreachable: 502,
    runner.McpFailed: 502,
    runner.Conflict: 409,
    runner.RequestError: 400,
    runner.CapacityError: 503,
    runner.WorkerTimeout: 504,
    runner.HearthError: 500,
}


_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_LLAMA_SERVER_TYPES = {
    **_OPENAI_TYPES,
    501: "not_supported_error",
    503: "unavailable_error",
}
_LLAMA_SERVER_NAMES = {"prompt_tokens": "n_prompt_tokens", "context_length": "n_ctx"}
_LLAMA_SERVER_PATHS = frozenset(
    (
        *("/completion", "/completions", "/infill", "/chat/completions", "/responses", "/predict"),
        *("/chat/completions/input_tokens", "/responses/input_tokens", "/embedding", "/embeddings"),
        *(
            "/rerank",
            "/reranking",
            "/score",
            "/tokenize",
            "/tokenizer_info",
            "/detokenize",
            "/apply-template",
        ),
        *("/props", "/slots", "/models", "/models/load", "/models/unload", "/lora-adapters"),
    )
)
_ANTHROPIC_TYPES = {**_OPENAI_TYPES, 413: "request_too_large", 504: "timeout_error"}


class HttpError(Exception):
    """A fault of the HTTP request itself, before any of the runner's business."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers


@dataclass(frozen=True, slots=True)
class HttpFailure:
    """An error as every surface tells it."""

    status: int
    code: str
    message: str
    details: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


class ErrorSurface(Protocol):
    """How one surface words a failure. framing: of the events of its streams."""

    framing: bytes

    def body(self, failure: HttpFailure) -> bytes:
        """The JSON body of an error response."""

    def event(self, failure: HttpFailure) -> bytes:
        """The last event of a stream that has begun."""
        return self.framing % self.body(failure)


def failure_of(error: Exception, request_id: str) -> HttpFailure:
    """The failure to report to the client for error; an unexpected one is logged with its
    traceback."""
    if isinstance(error, HttpError):
        return HttpFailure(error.status, error.code, error.message, headers=error.headers)
    known = as_hearth_error(error)
    if known is None:
        log.error("request %s failed", request_id, exc_info=error)
        message = (
            f"internal error: please report it with the log of the daemon for request {request_id}"
        )
        return HttpFailure(500, "internal_error", message, {"request_id": request_id})
    retry = known.details.get("retry_after_s")
    headers = {} if retry is None else {"retry-after": str(retry)}
    return HttpFailure(_status(known), known.code, known.message, known.details, headers)


def _status(error: runner.HearthError) -> int:
    if isinstance(error, runner.StorageFailed) and error.details.get("errno") in (
        "ENOSPC",
        "EDQUOT",
        "EFBIG",
    ):
        return 507
    return next(status for kind, status in _STATUS.items() if isinstance(error, kind))


class OpenAIErrors(ErrorSurface):
    """{"error": {"message", "type", "param", "code"}}."""

    framing = b"data: %s\n\n"

    def body(self, failure: HttpFailure) -> bytes:
        return to_json({"error": self.error(failure)})

    def error(self, failure: HttpFailure) -> dict[str, Any]:
        """What is told under error."""
        error = OpenAIErrorBody(
            message=failure.message,
            type=_type(_OPENAI_TYPES, failure.status, "server_error"),
            param=failure.details.get("param"),
            code=failure.code,
        )
        extras = {name: value for name, value in failure.details.items() if name != "param"}
        return {**error, **extras}


class OllamaErrors(ErrorSurface):
    """{"error": "..."} and, for programs, the code and details beside it."""

    framing = b"%s\n"

    def body(self, failure: HttpFailure) -> bytes:
        error = OllamaError(error=failure.message, code=failure.code)
        return to_json({**error, **failure.details})


class AnthropicErrors(ErrorSurface):
    """{"type": "error", "error": {"type", "message"}}."""

    framing = b"event: error\ndata: %s\n\n"

    def body(self, failure: HttpFailure) -> bytes:
        error = AnthropicErrorBody(
            type=_type(_ANTHROPIC_TYPES, failure.status, "api_error"),
            message=failure.message,
            code=failure.code,
        )
        return to_json({"type": "error", "error": {**failure.details, **error}})


class LlamaServerErrors(ErrorSurface):
    """{"error": {"code", "message", "type"}}, where the code is the status."""

    framing = b"data: %s\n\n"

    def body(self, failure: HttpFailure) -> bytes:
        error = LlamaServerErrorBody(
            code=failure.status,
            message=failure.message,
            type="exceed_context_size_error"
            if failure.code == runner.ContextOverflow.code
            else _type(_LLAMA_SERVER_TYPES, failure.status, "server_error"),
        )
        extras = {_LLAMA_SERVER_NAMES.get(k, k): value for k, value in failure.details.items()}
        return to_json({"error": {**extras, **error}})


def surface_of(path: str, *, to_anthropic: bool = False) -> ErrorSurface:
    """The surface that a path belongs to. to_anthropic: the client says that it speaks to
    Anthropic, so it is that one on the paths that OpenAI has as well."""
    if path.startswith(("/v1/messages", "/messages")) or (to_anthropic and path.startswith("/v1/")):
        return AnthropicErrors()
    if path in _LLAMA_SERVER_PATHS or path.startswith("/slots/"):
        return LlamaServerErrors()
    return OpenAIErrors() if path.startswith("/v1") else OllamaErrors()


def _type(types: Mapping[int, str], status: int, of_server: str) -> str:
    return types.get(status, "invalid_request_error" if status < 500 else of_server)
