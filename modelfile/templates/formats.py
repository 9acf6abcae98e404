"""How large the result of a text operation can get, asked before it is carried out: printf-style
and str.format formats, and the methods of str that grow text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from modelfile.templates.budget import Budget, LimitExceeded

_LARGE = re.compile(r"\d{5}")
_WIDE = re.compile(r"\d{3}")
_STARRED = re.compile(r"%[-+ #0]*+(?:\*|\d*+\.\*)")  # after a %(name) Python takes no star
_NESTED = re.compile(r"\{[^{}]*\{")
_WIDEST = 10_000
_OBJECT_SIZE = 80  # bytes of a short str


def check_percent(budget: Budget, text: str, values: Any) -> None:
    """Ask before text % values. Raises LimitExceeded."""
    if _STARRED.search(text):
        raise LimitExceeded("a width of * in a format is not allowed in a template")
    _check_fields(budget, text, text.count("%"), values)


def check_format(budget: Budget, text: str, values: Any) -> None:
    """Ask before text.format(values). Raises LimitExceeded."""
    if _NESTED.search(text.replace("{{", "").replace("}}", "")):
        raise LimitExceeded("a format within a format is not allowed in a template")
    _check_fields(budget, text, text.count("{"), values)


def check_method(
    budget: Budget, text: str, name: str, args: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Ask before the method name of text is called with args and named; gives the args to use.

    Raises LimitExceeded.
    """
    if name == "join" and len(args) == 1 and not isinstance(args[0], list | tuple | str | dict):
        args = (list(args[0]),)
    if name == "join" and args:
        budget.check_size(budget.measure(args[0]))
    given = (*args, *named.values())
    if name in _SEARCHES and given and isinstance(given[0], str):
        budget.search(text, len(given[0]), backwards=name[0] == "r" and name != "replace")
    estimate = _METHODS.get(name)
    if estimate is not None:
        budget.check_size(estimate(text, given))
    return args


def replaced_size(text: str, old: Any, new: Any) -> int:
    """The most that text.replace(old, new) can have."""
    found, into = str(old), str(new)
    count = text.count(found) if found else len(text) + 1
    return len(text) + count * max(0, len(into) - len(found))


def _check_fields(budget: Budget, text: str, fields: int, values: Any) -> None:
    if _LARGE.search(text):
        raise LimitExceeded("a width of 10000 or more in a format is not allowed in a template")
    budget.write(len(text))
    wide = _WIDEST if _WIDE.search(text) else 100
    budget.check_size(len(text) + fields * (wide + budget.measure(values)))


def _width(text: str, args: tuple[Any, ...]) -> int:
    return max(len(text), args[0] if args and isinstance(args[0], int) else 0)


def _tabs(text: str, args: tuple[Any, ...]) -> int:
    size = args[0] if args and isinstance(args[0], int) else 8
    return len(text) + text.count("\t") * max(0, size)


def _replace(text: str, args: tuple[Any, ...]) -> int:
    return replaced_size(text, args[0], args[1]) if len(args) > 1 else len(text)


def _join(text: str, args: tuple[Any, ...]) -> int:
    items = args[0] if args else ()
    return len(text) * len(items)


def _split(text: str, args: tuple[Any, ...]) -> int:
    separator = args[0] if args and isinstance(args[0], str) and args[0] else None
    if separator is not None:
        return len(text) + _OBJECT_SIZE * text.count(separator)
    return len(text) + _OBJECT_SIZE * sum(text.count(blank) for blank in " \n\t\r\v\f")


def _lines(text: str, _args: tuple[Any, ...]) -> int:
    return len(text) + _OBJECT_SIZE * (text.count("\n") + text.count("\r"))


_SEARCHES: Final = frozenset(
    (
        "count",
        "find",
        "index",
        "partition",
        "replace",
        "rfind",
        "rindex",
        "rpartition",
        "rsplit",
        "split",
    )
)
_METHODS: Final[Mapping[str, Callable[[str, tuple[Any, ...]], int]]] = {
    "center": _width,
    "ljust": _width,
    "rjust": _width,
    "zfill": _width,
    "expandtabs": _tabs,
    "replace": _replace,
    "join": _join,
    "split": _split,
    "rsplit": _split,
    "splitlines": _lines,
}
