"""Request bodies: how long they may be, and from their JSON to the model of a surface.

Knows no connection and no surface.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, ErrorDetails, from_json, to_json

from runner.errors import InvalidRequest
from runner.server.body_budget import BodyMemory
from runner.server.errors import HttpError
from runner.server.json_bounds import JsonBounds
from runner.server.refused_fields import Refusals, refuse_fields
from runner.turns import LARGE_BYTES, mark_large, take_turn

MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_IMAGES_BODY_BYTES = 64 * 1024 * 1024  # 40 MiB of images in base64, and their conversation
_IMAGE_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_\\"
_PROSE_SHARE = 16  # of the bytes of a text at least every 16th is a space, a sign or no ASCII

_WITH_IMAGES = frozenset(
    (
        *("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
        *("/chat/completions", "/responses", "/messages", "/messages/count_tokens"),
        *("/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"),
        *("/v1/responses/input_tokens", "/responses/input_tokens"),
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

MAX_MESSAGES: Final = 4096  # of a conversation: 10 ms
MAX_TOOLS: Final = 1024  # 16 ms
_PIECE_BYTES = 1 << 20  # of a message, looked at in one step: 3 ms
_SHOWN_CHARS = 60  # of a wrong value
_SHOWN_ITEMS = 30
_SHOWN_DEPTH = 2

WireT = TypeVar("WireT", bound="WireModel")
Completion = Callable[[dict[str, Any]], None]  # adds to the JSON of a body what it leaves out


def _fail_fast(schema: Any) -> None:
    """Set fail_fast wherever a schema, or a part of it, has a choice."""
    if isinstance(schema, dict):
        if schema.get("type") in ("list", "dict"):
            schema["fail_fast"] = True
        for name, part in schema.items():
            if name != "metadata":
                _fail_fast(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            _fail_fast(part)


class WireModel(BaseModel):
    """The base of what clients send: exact types, no NaN. refused: the fields that are known and
    not honoured; unknown ones are ignored."""

    refused: ClassVar[Refusals] = {}
    model_config = ConfigDict(
        strict=True,
        extra="ignore",
        allow_inf_nan=False,
        defer_build=True,  # until the first body: building all took a tenth of the daemon's start
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Lists and objects stop at their first fault: collecting those of 50,000 items takes half
        a second."""
        schema = handler(source)
        _fail_fast(schema)
        return schema

    def refuse_unsupported(self) -> None:
        """Raises Unsupported for fields that would silently change the answer if they were ignored,
        InvalidRequest for those that do not go together."""


def parse_body(
    body: bytes | bytearray, model: type[WireT], complete: Completion | None = None
) -> WireT:
    """The JSON in body as model. Raises InvalidRequest, Unsupported naming the field."""
    return validate(parse_object(body), model, complete)


def parse_object(body: bytes | bytearray) -> dict[str, Any]:
    """The JSON object in body. Raises InvalidRequest."""
    if not body:
        raise InvalidRequest("missing request body: send a JSON object")
    try:
        # "all", its default, keeps 16,384 short texts of clients for ever
        value = from_json(body, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object")
    return value


def validate(
    value: dict[str, Any], model: type[WireT], complete: Completion | None = None
) -> WireT:
    """value as model. Raises InvalidRequest, Unsupported naming the field."""
    refuse_fields(value, model.refused, own=model.model_fields)
    if complete is not None and "model" in model.model_fields:
        complete(value)
    try:
        parsed = model.model_validate(value)
    except ValidationError as error:
        raise _refusal(error, value) from None
    parsed.refuse_unsupported()
    return parsed


async def parse_large(
    body: bytearray, model: type[WireT], complete: Completion | None = None
) -> WireT:
    """A large body as model, in turns; body is empty afterwards. Raises as parse_body."""
    mark_large()
    await take_turn()
    data = bytes(body)  # from_json would copy it as well, in the same step
    body.clear()
    await take_turn()
    value = parse_object(data)
    del data
    await take_turn()
    return validate(value, model, complete)


async def parse_message(data: bytes, path: str, memory: BodyMemory, model: type[WireT]) -> WireT:
    """A message that came whole as model, within the bounds of a body of path. Raises as
    parse_body, and HttpError 413 and 503."""
    if len(data) <= LARGE_BYTES:
        return parse_body(data, model)
    mark_large()
    reader = BodyReader(path, memory)
    for start in range(0, len(data), _PIECE_BYTES):
        await take_turn()
        reader.add(data[start : start + _PIECE_BYTES])
    return await parse_large(reader.body, model)


class BodyReader:
    """Takes a body as it arrives, within its bounds. memory: what it may hold."""

    __slots__ = ("_bounds", "_max_bytes", "_memory", "_text_bytes", "body")

    def __init__(self, path: str, memory: BodyMemory) -> None:
        self.body = bytearray()
        self._bounds: JsonBounds | None = None
        self._max_bytes = body_limit_bytes(path)
        self._memory = memory
        self._text_bytes = 0

    def add(self, data: bytes) -> None:
        """The next bytes. Raises HttpError 413 and 503, InvalidRequest."""
        size_bytes = len(self.body) + len(data)
        if size_bytes > self._max_bytes:
            raise too_large(self._max_bytes)
        before = len(self.body)
        self.body += data  # small bodies hold nothing, see BodyMemory
        if size_bytes > LARGE_BYTES:
            self._look(bytes(self.body) if before <= LARGE_BYTES else data)

    def _look(self, data: bytes) -> None:
        self._bounds = self._bounds or JsonBounds()
        self._bounds.add(data)
        prose = len(data.translate(None, _IMAGE_BYTES))
        self._text_bytes += min(len(data), prose * _PROSE_SHARE)
        wide_bytes = self._bounds.wide_bytes
        if max(self._text_bytes, wide_bytes) > MAX_BODY_BYTES:
            raise HttpError(
                413,
                "body_too_large",
                f"the body has more than {MAX_BODY_BYTES >> 20} MiB beside its images",
                connection="close",
            )
        self._memory.hold(len(self.body), wide_bytes)


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
    faults = error.errors(include_url=False)
    places = [_place(body, fault) for fault in faults]
    field = places[0]
    nearest = max((place for place in places if place[: len(field)] == field), key=_how_far)
    there = [fault for fault, place in zip(faults, places, strict=True) if place == nearest]
    path, fault = ".".join(map(str, nearest)) or "body", there[0]
    if fault["type"] == "missing":
        return InvalidRequest(f"{path} is missing", param=path)
    if fault["type"] == "too_long":
        reason = f"has more than {fault['ctx']['max_length']} entries; send fewer in one request"
        return InvalidRequest(f"{path} {reason}", param=path)
    shown = to_json(_beginning(fault["input"]), serialize_unknown=True).decode()
    got = f"(got {shown if len(shown) <= _SHOWN_CHARS else shown[:_SHOWN_CHARS] + '...'})"
    forms = dict.fromkeys(filter(None, map(_form, there)))
    if forms:
        *more, last = forms
        form = f"{', '.join(more)} or {last}" if more else last
        return InvalidRequest(f"{path} must be {form} {got}", param=path)
    reason = fault["msg"].removeprefix("Value error, ")
    return InvalidRequest(f"{path}: {reason[:1].lower()}{reason[1:]} {got}", param=path)


def _beginning(value: Any, depth: int = 0) -> Any:
    """A value of which no more is left than a line shows."""
    if isinstance(value, str):
        return value[:_SHOWN_CHARS]
    if isinstance(value, list):
        kept = value[: 0 if depth > _SHOWN_DEPTH else _SHOWN_ITEMS]
        return [_beginning(item, depth + 1) for item in kept]
    if isinstance(value, dict):
        items = islice(value.items(), 0 if depth > _SHOWN_DEPTH else _SHOWN_ITEMS)
        return {key[:_SHOWN_CHARS]: _beginning(item, depth + 1) for key, item in items}
    return value


def _place(body: Any, fault: ErrorDetails) -> tuple[str | int, ...]:
    """The keys and indices on the way to a fault: its place without the names of types."""
    place: list[str | int] = []
    for part in fault["loc"]:
        if _holds(body, part):
            place.append(part)
            body = body[part]
    return (*place, fault["loc"][-1]) if fault["type"] == "missing" else tuple(place)


def _how_far(place: tuple[str | int, ...]) -> tuple[int, list[int]]:
    """How far a form fits: a list does up to its first fault."""
    return len(place), [part for part in place if isinstance(part, int)]


def _holds(value: Any, part: str | int) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list) and isinstance(part, int)


def _form(fault: ErrorDetails) -> str | None:
    """What should be in the place of a fault; None: it is more than a wrong form."""
    begin, form, rest = fault["msg"].partition("Input should be ")
    return _FORMS.get(fault["type"]) or (rest if form and not begin else None)
