"""The lines of a batch's input file: which request each is, or what is wrong with it.

Knows the form of a line and nothing of what its body means: that is the endpoint's business.
Reading blocks on the disk.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from runner.errors import InvalidRequest
from runner.server.json_bounds import check_bounds
from runner.server.request_body import MAX_BODY_BYTES
from runner.turns import LARGE_BYTES

MAX_LINES = 50_000
MAX_BLANK_LINES = MAX_LINES
MAX_LINE_BYTES = MAX_BODY_BYTES
MAX_FAULTS = 100
MAX_ID_CHARS = 512
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class InputLine:
    """A request. number: from 1."""

    number: int
    custom_id: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class InputFault:
    """What is wrong with the input, in OpenAI's words."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None

    def to_json(self) -> dict[str, Any]:
        """It as JSON values."""
        return asdict(self)


@dataclass(slots=True)
class InputCheck:
    """What the input holds. model: that of its first request."""

    total: int = 0
    model: str | None = None
    faults: list[InputFault] = field(default_factory=list)


def check(path: Path, endpoint: str) -> InputCheck:
    """Look at all lines; after MAX_FAULTS faults the rest is not read. Raises OSError."""
    found, seen = InputCheck(), set[str]()
    for item in read_lines(path, endpoint):
        if isinstance(item, InputFault):
            found.faults.append(item)
        elif item.custom_id in seen:
            message = f"the custom_id {item.custom_id[:80]!r} is already used on an earlier line"
            found.faults.append(
                InputFault("duplicate_custom_id", message, item.number, "custom_id")
            )
        elif found.total == MAX_LINES:
            message = f"the file contains more than {MAX_LINES} requests"
            found.faults.append(InputFault("too_many_requests", message, item.number))
            return found
        else:
            seen.add(item.custom_id)
            found.total += 1
            if found.total == 1 and isinstance(model := item.body.get("model"), str):
                found.model = model
        if len(found.faults) >= MAX_FAULTS:
            return found
    if not found.total and not found.faults:
        found.faults.append(InputFault("empty_file", "the file contains no requests"))
    return found


def read_lines(path: Path, endpoint: str) -> Iterator[InputLine | InputFault]:
    """The lines one by one, without blank ones. Raises OSError."""
    with path.open("rb") as stream:
        number = blank = 0
        while data := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(data) > MAX_LINE_BYTES:
                message = f"the line is longer than {MAX_LINE_BYTES} bytes; reading stopped there"
                yield InputFault("line_too_long", message, number)
                return
            if number == 1:
                data = data.removeprefix(_BOM)
            if data.strip():
                yield parse(number, data, endpoint)
                continue
            blank += 1
            if blank > MAX_BLANK_LINES:
                message = f"the file has more than {MAX_BLANK_LINES} blank lines"
                yield InputFault("invalid_file", f"{message}; reading stopped there", number)
                return


def parse(number: int, data: bytes, endpoint: str) -> InputLine | InputFault:
    """The request on one line."""
    try:
        if len(data) > LARGE_BYTES:
            check_bounds(data)
        value = from_json(data, allow_inf_nan=False, cache_strings="keys")
    except InvalidRequest as error:
        return InputFault("invalid_body", error.message, number, "body")
    except ValueError as error:
        return InputFault("invalid_json_line", f"the line is not valid JSON: {error}", number)
    if not isinstance(value, dict):
        return InputFault("invalid_json_line", "the line is not a JSON object", number)
    ident, body = value.get("custom_id"), value.get("body")
    if not isinstance(ident, str) or not 1 <= len(ident) <= MAX_ID_CHARS:
        message = f"custom_id must be a string of 1 to {MAX_ID_CHARS} characters"
        return InputFault("missing_custom_id", message, number, "custom_id")
    if value.get("method") != "POST":
        return InputFault("invalid_method", _expected("method", "POST", value), number, "method")
    if value.get("url") != endpoint:
        return InputFault("invalid_url", _expected("url", endpoint, value), number, "url")
    if not isinstance(body, dict):
        return InputFault("invalid_body", "body must be a JSON object", number, "body")
    return InputLine(number, ident, body)


def _expected(name: str, expected: str, value: dict[str, Any]) -> str:
    return f"{name} must be {expected!r} (got {reprlib.repr(value.get(name))})"
