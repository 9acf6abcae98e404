"""encoding/json: a Go value as JSON, keys of maps in order, <, > and & escaped."""

from __future__ import annotations

import base64
import json
import math
import re
from typing import Any, Final

from modelfile.templates.gotemplate.floats import format_float
from modelfile.templates.gotemplate.formatter import sorted_keys
from modelfile.templates.gotemplate.values import GoMap, GoSlice, GoStruct, is_missing

_NO_TEXT = re.compile(r"[\udc80-\udcff]")
_ESCAPED: Final = {mark: f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


class NotEncodable(Exception):
    """JSON has no way to write a value."""


def marshal(value: Any) -> str:
    """value as JSON. Raises NotEncodable: it holds what is no number."""
    if isinstance(value, str):
        return _text(value)
    if is_missing(value):
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return _number(value)
    return _collection(value)


def _collection(value: Any) -> str:
    custom = getattr(value, "go_json", None)
    if custom is not None:
        return str(custom())
    if isinstance(value, GoSlice | GoMap) and value.is_nil:
        return "null"
    if isinstance(value, list):
        return "[" + ",".join(map(marshal, value)) + "]"
    if isinstance(value, dict):
        return _object((key, value[key]) for key in sorted_keys(value))
    if isinstance(value, GoStruct):
        return _object(_fields(value))
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    raise NotEncodable(type(value).__name__)


def _object(items: Any) -> str:
    return "{" + ",".join(f"{_text(key)}:{marshal(item)}" for key, item in items) + "}"


def ordered_object(value: dict[str, Any]) -> str:
    """A map as JSON in its own order."""
    return _object(value.items())


def _fields(value: GoStruct) -> Any:
    if value.json is None:
        yield from value.fields.items()
        return
    for field, name, omitted in value.json:
        item = value.fields[field]
        if not (omitted and _is_empty(item)):
            yield name, item


def _is_empty(value: Any) -> bool:
    if isinstance(value, GoStruct):
        return False
    return not value


def _number(value: float) -> str:
    if not math.isfinite(value):
        raise NotEncodable(str(value))
    if value and not 1e-6 <= abs(value) < 1e21:
        text = format_float(value, "e")
        return text[:-2] + text[-1] if text[-4:-1] == "e-0" else text
    return format_float(value, "f")


def _text(text: str) -> str:
    """A string as encoding/json writes it, with <, > and & escaped."""
    written = json.dumps(_NO_TEXT.sub("\ufffd", text), ensure_ascii=False)
    for mark, escaped in _ESCAPED.items():
        written = written.replace(mark, escaped)
    return written
