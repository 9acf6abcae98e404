"""Numbers in paths and queries."""

from __future__ import annotations

from runner.errors import InvalidRequest
from runner.server.http_request import HttpRequest

_MAX_DIGITS = 15


def number_of(http: HttpRequest) -> int:
    """The {number} of the path. Raises InvalidRequest."""
    return parse_number(http.parameter("number"), "number")


def parse_number(text: str, param: str) -> int:
    """A number of at least 0. Raises InvalidRequest."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise InvalidRequest(f"{param}={text[:40]!r} is not a number", param=param)
    return int(text)
