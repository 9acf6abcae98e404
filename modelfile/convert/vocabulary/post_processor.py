"""What the post-processor of a tokenizer.json puts before and after one text.

Knows no ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from modelfile.convert.files import brief, child, fault, items, objects

SurroundingTokens = tuple[str | None, str | None]  # the token before, the token after
_FIELD: Final = "post_processor"
_MAX_PARTS: Final = 16


def surrounding_tokens(tokenizer: Mapping[str, Any]) -> SurroundingTokens | None:
    """The tokens; None where there is no tokenizer.json. Raises ConvertError."""
    if not tokenizer:
        return None
    return _frame(child(tokenizer, _FIELD), 0)


def _frame(value: Mapping[str, Any], depth: int) -> SurroundingTokens:
    kind = value.get("type")
    if kind in (None, "ByteLevel"):
        return None, None
    if kind == "Sequence" and depth < 4:
        return _sequence(value, depth)
    if kind in ("BertProcessing", "RobertaProcessing"):
        return _first(value, "cls"), _first(value, "sep")
    if kind == "TemplateProcessing":
        return _template(items(value, "single"))
    raise fault(_FIELD, f"{brief(kind)} is not supported")


def _sequence(value: Mapping[str, Any], depth: int) -> SurroundingTokens:
    before = after = None
    for part in objects(items(value, "processors")[:_MAX_PARTS], _FIELD):
        first, last = _frame(part, depth + 1)
        before, after = first or before, last or after
    return before, after


def _first(value: Mapping[str, Any], key: str) -> str:
    pair = items(value, key)
    if not pair or not isinstance(pair[0], str):
        raise fault(key, f"{brief(pair)}, expected a token and its id")
    return pair[0]


def _template(parts: list[Any]) -> SurroundingTokens:
    sides: tuple[list[str], list[str]] = ([], [])
    seen = 0
    for part in objects(parts[:_MAX_PARTS], _FIELD):
        if "Sequence" in part:
            seen = 1
            continue
        text = child(part, "SpecialToken").get("id")
        if not isinstance(text, str):
            raise fault(_FIELD, f"{brief(text)}, expected the text of a token")
        sides[seen].append(text)
    # llama.cpp adds one token at each side at most; what a chat needs more is in its template.
    before, after = (side[0] if len(side) == 1 else None for side in sides)
    return before, after
