"""Request bodies: how long they may be, and from their JSON to the model of a surface.

Knows no connection and no surface.
"""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from runner.errors import InvalidRequest
from runner.server.errors import HttpError

MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_IMAGES_BODY_BYTES = 64 * 1024 * 1024  # 40 MiB of images in base64, and their conversation

_WITH_IMAGES = frozenset(
    (
        *("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
        *("/api/chat", "/api/generate", "/tokenize", "/apply-template"),
    )
)

WireT = TypeVar("WireT", bound="WireModel")


class WireModel(BaseModel):
    """The base of what clients send: exact types, no NaN; unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    def refuse_unsupported(self) -> None:
        """Raises Unsupported for fields that would silently change the answer if they were ignored,
        InvalidRequest for those that do not go together."""


def parse_body(body: bytes, model: type[WireT]) -> WireT:
    """The JSON in body as model. Raises InvalidRequest, Unsupported naming the field."""
    if not body:
        raise InvalidRequest("missing request body: send a JSON object")
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object")
    try:
        parsed = model.model_validate(value)
    except ValidationError as error:
        raise _of_validation(error) from None
    parsed.refuse_unsupported()
    return parsed


def body_limit_bytes(path: str) -> int:
    """The longest body that a path takes."""
    return MAX_IMAGES_BODY_BYTES if path in _WITH_IMAGES else MAX_BODY_BYTES


def too_large(limit_bytes: int) -> HttpError:
    """The refusal of a body over the limit."""
    return HttpError(
        413,
        "body_too_large",
        f"the body is longer than {limit_bytes // (1 << 20)} MiB",
        connection="close",
    )


def _of_validation(error: ValidationError) -> InvalidRequest:
    first = error.errors(include_url=False, include_context=False)[0]
    path = ".".join(str(part) for part in first["loc"]) or "body"
    shown = repr(first.get("input"))
    value = shown if len(shown) <= 60 else shown[:60] + "..."
    if first["type"] == "missing":
        return InvalidRequest(f"{path} is missing", param=path)
    reason = first["msg"].removeprefix("Value error, ")
    return InvalidRequest(f"{path}: {reason[:1].lower()}{reason[1:]} (got {value})", param=path)
