"""The constants of Go: quoted strings, characters, numbers (strconv.Unquote, ParseInt, ...)."""

from __future__ import annotations

import re
from typing import Final

from modelfile.templates.gotemplate.lexer import ItemType, quoted
from modelfile.templates.gotemplate.nodes import NumberNode

_SIMPLE: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
                  "\\": "\\"}  # fmt: skip
_ESCAPE = re.compile(
    r"\\(?:x(?P<byte>[0-9a-fA-F]{2})|(?P<octal>[0-7]{3})|u(?P<short>[0-9a-fA-F]{4})"
    r"|U(?P<long>[0-9a-fA-F]{8})|(?P<simple>[abfnrtv\\'\"])|(?P<bad>.?))",
    re.DOTALL,
)
_INTEGER = re.compile(
    r"[+-]?(?:0[xX](?:_?[0-9a-fA-F])+|0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0(?:_?[0-7])*"
    r"|[1-9](?:_?[0-9])*)"
)
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEX_FLOAT = re.compile(r"[+-]?0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?[0-9]+")
_HEX = re.compile(r"[+-]?0[xX]")
_UNDERSCORE = re.compile(r"(?<=[0-9])_(?=[0-9])")
_HEX_UNDERSCORE = re.compile(r"(?<=[0-9a-fA-FxX])_(?=[0-9a-fA-F])")
_INT64: Final = 2**63
_UINT64: Final = 2**64


def unquote(source: str) -> str:
    """The text of a quoted or raw string. Raises ValueError with Go's words."""
    if source.startswith("`"):
        return source[1:-1].replace("\r", "")
    if "\\" not in source:
        return source[1:-1]
    text = _ESCAPE.sub(lambda found: _unescape(found, '"'), source[1:-1])
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _unescape(found: re.Match[str], quote: str) -> str:
    """One escape; a byte above 127 is a surrogate escape until it is joined with others."""
    if found["byte"] or found["octal"]:
        value = int(found["byte"], 16) if found["byte"] else int(found["octal"], 8)
        if value > 255:
            raise ValueError("invalid syntax")
        return chr(value) if value < 128 else chr(0xDC00 + value)
    if found["short"] or found["long"]:
        return _code_point(int(found["short"] or found["long"], 16))
    simple = found["simple"]
    if simple is None or (simple in "'\"" and simple != quote):
        raise ValueError("invalid syntax")
    return _SIMPLE.get(simple, simple)


def _code_point(value: int) -> str:
    if value > 0x10FFFF or 0xD800 <= value < 0xE000:
        raise ValueError("invalid syntax")
    return chr(value)


def number(position: int, source: str, kind: ItemType) -> NumberNode:
    """The number of a token. Raises ValueError with Go's words."""
    node = NumberNode(position, source)
    if kind is ItemType.CHARACTER:
        node.integer = _character(source)
        node.floating = float(node.integer)
    elif kind is ItemType.COMPLEX:
        node.complex_ = _complex(source)
        _simplify(node, node.complex_)
    elif source.endswith("i"):
        imaginary = _float(source[:-1])
        if imaginary is None:
            raise ValueError(f"illegal number syntax: {quoted(source)}")
        node.complex_ = complex(0, imaginary)
        _simplify(node, node.complex_)
    else:
        _plain(node)
    return node


def _character(source: str) -> int:
    inner = source[1:-1]
    found = _ESCAPE.match(inner)
    if found is None:
        if len(inner) != 1:
            raise ValueError(f"malformed character constant: {source}" if inner
                             else "invalid syntax")  # fmt: skip
        return ord(inner)
    value = ord(_unescape(found, "'"))
    if found.end() != len(inner):
        raise ValueError(f"malformed character constant: {source}")
    return value - 0xDC00 if 0xDC80 <= value <= 0xDCFF else value


def _plain(node: NumberNode) -> None:
    value = _integer(node.source)
    if value is not None and -_INT64 <= value < _UINT64:
        node.integer = value if value < _INT64 else None
        node.floating = float(value)
        return
    floating = _float(node.source)
    if floating is None:
        raise ValueError(f"illegal number syntax: {quoted(node.source)}")
    if not any(mark in node.source for mark in ".eEpP"):
        raise ValueError(f"integer overflow: {quoted(node.source)}")
    node.floating = floating
    if floating.is_integer() and abs(floating) < _INT64:
        node.integer = int(floating)


def _complex(source: str) -> complex:
    split = max(source.rfind("+"), source.rfind("-"))
    if source[split - 1] in "eEpP":
        split = max(source.rfind("+", 0, split), source.rfind("-", 0, split))
    real, imaginary = _float(source[:split]), _float(source[split:-1])
    if real is None or imaginary is None:
        raise ValueError("syntax error scanning complex number")
    return complex(real, imaginary)


def _simplify(node: NumberNode, value: complex) -> None:
    if value.imag == 0:
        node.floating = value.real
        node.integer = int(value.real) if value.real.is_integer() else None


def _integer(source: str) -> int | None:
    if _INTEGER.fullmatch(source) is None:
        return None
    sign, digits = (source[0], source[1:]) if source[0] in "+-" else ("", source)
    digits = digits.replace("_", "")
    octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdecimal()
    value = int(digits, 8) if octal else int(digits, 0)
    return -value if sign == "-" else value


def _float(source: str) -> float | None:
    text = source.replace("_", "")
    between = _HEX_UNDERSCORE if _HEX.match(source) else _UNDERSCORE
    if len(between.findall(source)) < source.count("_"):
        return None
    if _HEX_FLOAT.fullmatch(text):
        try:
            return float.fromhex(text)
        except (OverflowError, ValueError):  # too large, or without a digit
            return None
    if _FLOAT.fullmatch(text) is None or len(text) > 800:
        return None
    value = float(text)
    return None if value in (float("inf"), float("-inf")) else value
