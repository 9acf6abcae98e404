"""The values of logit_bias: every form that clients write, and the one in which bundles keep them.

That form is a tuple of texts TOKEN=BIAS, as in a Modelfile. TOKEN is a number, which is a token's
id, or a text, each of whose tokens gets the bias; a text that could be taken for something else
is a JSON string. BIAS is a number, or -inf for never. Knows no vocabulary.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

MAX_BIASES: Final = 1024
MAX_BIAS: Final = 100
MAX_TEXT_BYTES: Final = 256
_ID = re.compile(r"\d{1,9}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d++\.?\d*|\.\d++)([eE][+-]?\d{1,3})?", re.ASCII)

Bias = tuple[int | str, float]  # of a token's id or of a text


def canonical(value: Any) -> tuple[str, ...] | None:
    """The kept form of value: a text TOKEN=BIAS, an object {TOKEN: BIAS}, or a list of such
    texts and of pairs [TOKEN, BIAS]. false as a bias: never. None: it is no such value."""
    items = _items(value)
    if items is None or len(items) > MAX_BIASES:
        return None
    found = [_bias(item) for item in items]
    known = [_written(*bias) for bias in found if bias is not None]
    return tuple(known) if len(known) == len(found) else None


def biases(kept: Iterable[str]) -> tuple[Bias, ...]:
    """The tokens and texts of a kept form with their biases. Raises ValueError for another."""
    found = []
    for text in kept:
        bias = _from_text(text)
        if bias is None:
            raise ValueError(f"{text[:60]!r} is not TOKEN=BIAS")
        found.append(bias)
    return tuple(found)


def _items(value: Any) -> list[Any] | None:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [list(pair) for pair in value.items()]
    return list(value) if isinstance(value, list | tuple) else None


def _bias(item: Any) -> Bias | None:
    if isinstance(item, str):
        return _from_text(item)
    if not isinstance(item, list | tuple) or len(item) != 2:
        return None
    token, bias = item
    key = _key(token) if isinstance(token, str) else _id(token)
    number = -math.inf if bias is False else _number(bias)
    return None if key is None or number is None else (key, number)


def _from_text(text: str) -> Bias | None:
    token, separator, number = text.rpartition("=")
    key, bias = _key(token), _parsed(number.strip())
    return (key, bias) if separator and key is not None and bias is not None else None


def _parsed(text: str) -> float | None:
    if text == "-inf":
        return -math.inf
    return _number(float(text)) if _NUMBER.fullmatch(text) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -MAX_BIAS <= value <= MAX_BIAS or value == -math.inf else None


def _id(value: Any) -> int | None:
    valid = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9
    return value if valid else None


def _key(token: str) -> int | str | None:
    if _ID.fullmatch(token):
        return int(token)
    if token.startswith('"'):
        try:
            token = json.loads(token)
        except (ValueError, RecursionError):
            return None
    size = len(token.encode("utf-8", "surrogatepass")) if isinstance(token, str) else 0
    return token if 0 < size <= MAX_TEXT_BYTES else None


def _written(key: int | str, bias: float) -> str:
    plain = isinstance(key, int) or not (_ID.fullmatch(key) or key.startswith('"'))
    number = f"{bias:.10g}"
    return f"{key if plain else json.dumps(key)}={number}"
