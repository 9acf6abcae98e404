"""Request bodies: how long they may be, and from their JSON to the model of a surface.

Knows no connection and no surface.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, from_json, to_json

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

_FORMS: Final = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
}
"""JSON's words for what pydantic misses."""

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
        raise _refusal(error, value) from None
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


def _refusal(error: ValidationError, body: dict[str, Any]) -> InvalidRequest:
    """What is wrong with the first field at fault, where it may have several forms: with the part
    that came nearest to one of them."""
    faults = error.errors(include_url=False, include_context=False)
    places = [_place(body, fault) for fault in faults]
    field = places[0]
    nearest = max((place for place in places if place[: len(field)] == field), key=len)
    there = [fault for fault, place in zip(faults, places, strict=True) if place == nearest]
    path, fault = ".".join(map(str, nearest)) or "body", there[0]
    if fault["type"] == "missing":
        return InvalidRequest(f"{path} is missing", param=path)
    shown = to_json(fault["input"], serialize_unknown=True).decode()
    got = f"(got {shown if len(shown) <= 60 else shown[:60] + '...'})"
    forms = dict.fromkeys(filter(None, map(_form, there)))
    if forms:
        *more, last = forms
        form = f"{', '.join(more)} or {last}" if more else last
        return InvalidRequest(f"{path} must be {form} {got}", param=path)
    reason = fault["msg"].removeprefix("Value error, ")
    return InvalidRequest(f"{path}: {reason[:1].lower()}{reason[1:]} {got}", param=path)


def _place(body: Any, fault: ErrorDetails) -> tuple[str | int, ...]:
    """The keys and indices on the way to a fault: its place without the names of types."""
    place: list[str | int] = []
    for part in fault["loc"]:
        if _holds(body, part):
            place.append(part)
            body = body[part]
    return (*place, fault["loc"][-1]) if fault["type"] == "missing" else tuple(place)


def _holds(value: Any, part: str | int) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list) and isinstance(part, int)


def _form(fault: ErrorDetails) -> str | None:
    """What should be in the place of a fault; None: it is more than a wrong form."""
    begin, form, rest = fault["msg"].partition("Input should be ")
    return _FORMS.get(fault["type"]) or (rest if form and not begin else None)
