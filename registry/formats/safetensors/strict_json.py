"""JSON of an untrusted checkpoint, stricter than Python's: no key twice, no NaN, bounded depth."""

from __future__ import annotations

import json
from typing import Any

from registry.errors import InvalidSafetensors, shown


def parse_object(content: bytes, what: str) -> dict[str, Any]:
    """The object that content holds. what: its name for messages. Raises InvalidSafetensors."""
    try:
        value = json.loads(
            content.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant
        )
    except InvalidSafetensors:
        raise
    except RecursionError:
        raise InvalidSafetensors(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise InvalidSafetensors(f"{what} is not JSON: {shown(str(error))}") from None
    if not isinstance(value, dict):
        raise InvalidSafetensors(f"{what} is not a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InvalidSafetensors(f"{shown(key)} occurs twice")
            seen.add(key)
    return found


def _no_constant(text: str) -> Any:
    raise InvalidSafetensors(f"{text} is not a JSON number")
