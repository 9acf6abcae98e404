"""Values as Go's fmt prints them: Sprint, and Sprintf with the verbs %s, %v and %d.

Published templates use printf with %s alone; other verbs, flags, widths and indexes are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from modelfile.templates.gotemplate.errors import CallFault
from modelfile.templates.gotemplate.floats import format_float
from modelfile.templates.gotemplate.values import (
    GoStruct,
    is_missing,
    kind,
    to_bytes,
    to_text,
    type_name,
)

_NIL: Final = "<nil>"
_ADDRESS: Final = "0xc000010000"  # Go prints addresses; they mean nothing here and stay the same
_MAX_DEPTH: Final = 60
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
_VERBS: Final = "%svd"


def sprint(
    values: Sequence[Any],
    *,
    pointed: bool = False,
    check_size: Callable[[int], None] = lambda _size: None,
) -> str:
    """The values one after the other, a blank between two of which none is a string. pointed: of
    a pointer, what it points at, as actions write it. check_size: asked before the text grows to
    a size, in characters."""
    parts: list[str] = []
    size = 0
    after_string = True
    for value in values:
        is_string = isinstance(value, str)
        if parts and not is_string and not after_string:
            parts.append(" ")
        check_size(size + (len(value) if is_string else 0))
        parts.append(_pointed(value) if pointed else print_value(value))
        size += len(parts[-1])
        after_string = is_string
    return "".join(parts)


def format_fault(form: str) -> str | None:
    """What printf cannot do of a format; None: it can."""
    for found in _DIRECTIVE.finditer(form):
        if not found[1] or found[1] not in _VERBS:
            shown = form[found.start() : found.start() + 8]
            return f"printf: {shown!r} is not supported; %s, %v, %d and %% are"
    return None


def sprintf(form: str, values: Sequence[Any], check_size: Callable[[int], None]) -> str:
    """The values as form wants them. What does not fit is written as Go writes it: %!d(...).
    check_size: asked before the text grows to a size, in characters. Raises CallFault."""
    if (fault := format_fault(form)) is not None:
        raise CallFault(fault)
    parts: list[str] = []
    size, number, end = len(form), 0, 0
    for found in _DIRECTIVE.finditer(form):
        parts.append(form[end : found.start()])
        end, verb = found.end(), found[1]
        if verb == "%":
            parts.append("%")
        elif number >= len(values):
            parts.append(f"%!{verb}(MISSING)")
        else:
            value = values[number]
            check_size(size + (len(value) if isinstance(value, str) else 0))
            parts.append(print_value(value, verb))
            size += len(parts[-1])
            number += 1
    parts.append(form[end:])
    if number < len(values):
        parts.append(f"%!(EXTRA {', '.join(map(_extra, values[number:]))})")
    return "".join(parts)


def _extra(value: Any) -> str:
    return _NIL if is_missing(value) else f"{type_name(value)}={print_value(value)}"


def print_value(value: Any, verb: str = "v", depth: int = 0) -> str:
    """value as the verb v, s or d wants it; %!verb(type=value) when the verb does not fit."""
    if depth > _MAX_DEPTH:
        return "..."
    if is_missing(value):
        return _NIL if depth or verb == "v" else f"%!{verb}({_NIL})"
    stringer = getattr(value, "go_string", None)
    if stringer is not None and verb in "vs":
        return str(stringer())
    return _PRINTERS[kind(value)](value, verb, depth)


def _pointed(value: Any) -> str:
    if isinstance(value, GoStruct) and value.pointer and not hasattr(value, "go_string"):
        return _print_struct(value, "v", 0)
    return print_value(value)


def _bad_verb(value: Any, verb: str) -> str:
    return f"%!{verb}({type_name(value)}={_PRINTERS[kind(value)](value, 'v', 0)})"


def _basic(verbs: str, write: Callable[[Any], str]) -> Callable[[Any, str, int], str]:
    """Prints values of a kind that fits these verbs."""
    return lambda value, verb, _depth: write(value) if verb in verbs else _bad_verb(value, verb)


def _print_slice(value: Any, verb: str, depth: int) -> str:
    if isinstance(value, bytes):
        return to_text(value) if verb == "s" else f"[{' '.join(map(str, value))}]"
    return "[" + " ".join(print_value(item, verb, depth + 1) for item in value) + "]"


def _print_map(value: Any, verb: str, depth: int) -> str:
    items = (
        f"{print_value(key, verb, depth + 1)}:{print_value(value[key], verb, depth + 1)}"
        for key in sorted_keys(value)
    )
    return f"map[{' '.join(items)}]"


def sorted_keys(value: dict[str, Any]) -> list[str]:
    """The keys in the order in which Go goes through them: that of their bytes."""
    if all(map(str.isascii, value)):
        return sorted(value)
    return sorted(value, key=to_bytes)


def _print_struct(value: GoStruct, verb: str, depth: int) -> str:
    items = (print_value(item, verb, depth + 1) for item in value.fields.values())
    return "{" + " ".join(items) + "}"


def _print_pointer(value: GoStruct, verb: str, depth: int) -> str:
    if depth == 0:
        return "&" + _print_struct(value, verb, depth)
    if verb == "d":
        return str(int(_ADDRESS, 16))
    return _ADDRESS if verb == "v" else _bad_verb(value, verb)


_PRINTERS: Final[dict[str, Callable[[Any, str, int], str]]] = {
    "bool": _basic("v", lambda value: "true" if value else "false"),
    "int": _basic("vd", lambda value: str(int(value))),
    "uint": _basic("vd", lambda value: str(int(value))),
    "float": _basic("v", lambda value: format_float(value, "g")),
    "string": _basic("vs", str),
    "slice": _print_slice,
    "map": _print_map,
    "struct": _print_struct,
    "pointer": _print_pointer,
    "invalid": lambda _value, _verb, _depth: _NIL,
}
