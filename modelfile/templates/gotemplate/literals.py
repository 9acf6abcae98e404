"""The constants of Go: quoted strings (strconv.Unquote) and decimal numbers."""

from __future__ import annotations

import math
import re
from typing import Final

from modelfile.templates.gotemplate.lexer import quoted

_SIMPLE: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
                  "\\": "\\"}  # fmt: skip
_ESCAPE = re.compile(
    r"\\(?:x(?P<byte>[0-9a-fA-F]{2})|(?P<octal>[0-7]{3})|u(?P<short>[0-9a-fA-F]{4})"
    r"|U(?P<long>[0-9a-fA-F]{8})|(?P<simple>[abfnrtv\\'\"])|(?P<bad>.?))",
    re.DOTALL,
)
_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]+)?")
_INT64: Final = 2**63


def unquote(source: str) -> str:
    """The text of a quoted or raw string. Raises ValueError with Go's words."""
    if source.startswith("`"):
        return source[1:-1].replace("\r", "")
    if "\\" not in source:
        return source[1:-1]
    text = _ESCAPE.sub(_unescape, source[1:-1])
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _unescape(found: re.Match[str]) -> str:
    """One escape; a byte above 127 is a surrogate escape until it is joined with others."""
    if found["byte"] or found["octal"]:
        value = int(found["byte"], 16) if found["byte"] else int(found["octal"], 8)
        if value > 255:
            raise ValueError("invalid syntax")
        return chr(value) if value < 128 else chr(0xDC00 + value)
    if found["short"] or found["long"]:
        return _code_point(int(found["short"] or found["long"], 16))
    simple = found["simple"]
    if simple is None or simple == "'":
        raise ValueError("invalid syntax")
    return _SIMPLE.get(simple, simple)


def _code_point(value: int) -> str:
    if value > 0x10FFFF or 0xD800 <= value < 0xE000:
        raise ValueError("invalid syntax")
    return chr(value)


def number(source: str) -> int | float:
    """The number of a token, of the type that its writing says. Raises ValueError with Go's
    words."""
    if _INTEGER.fullmatch(source):
        value = int(source)
        if not -_INT64 <= value < 2 * _INT64:
            raise ValueError(f"integer overflow: {quoted(source)}")
        if value >= _INT64:
            raise ValueError(f"{source} overflows int")
        return value
    if _FLOAT.fullmatch(source) is None or math.isinf(float(source)):
        raise ValueError(f"number {quoted(source)} is not supported; write it in decimal")
    return float(source)
