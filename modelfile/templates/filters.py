"""Jinja's filters within the budget: those that can grow text or lists ask the budget first, and
the result of every one is counted."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from jinja2.filters import FILTERS
from jinja2.tests import TESTS

from modelfile.templates.budget import Budget, LimitExceeded
from modelfile.templates.formats import check_percent, replaced_size

_LEFT_OUT: Final = frozenset(  # a prompt is the same for the same messages
    (
        "random",
        # quadratic on hostile text, and used by no published template
        *("pprint", "striptags", "urlize", "wordcount", "wordwrap", "xmlattr"),
    )
)
_AT_ONCE: Final = frozenset(  # those that do not go through their value
    ("abs", "attr", "count", "d", "default", "first", "items", "last", "length", "round", "safe")
)
_BY_ELEMENT: Final = frozenset(  # those that go through their value, but not through its elements
    ("batch", "list", "map", "reject", "rejectattr", "reverse", "select", "selectattr", "slice")
)
_ATTRIBUTE: Final[Mapping[str, int]] = {  # where a filter's arguments have an attribute's name
    **dict.fromkeys(("groupby", "rejectattr", "selectattr", "sum"), 1),
    **dict.fromkeys(("join", "max", "min", "unique"), 2),
    "map": 9,
    "sort": 3,
}
_MAX_NAMES: Final = 16  # of an attribute of an attribute, each looked up in each element
_MAX_NAMES_SIZE: Final = 1000
_READING: Final = frozenset(  # tests that go through their arguments
    (
        *("==", "eq", "equalto", "!=", "ne", "<", "lt", "lessthan", "<=", "le", ">", "gt"),
        *("greaterthan", ">=", "ge", "in", "lower", "upper"),
    )
)
_MAX_INDENT = 16
_MAX_PRECISION = 300
_OBJECT_SIZE = 80


class SandboxOperations(Protocol):
    """What filters need of the sandbox they run in: its operations count steps and bytes."""

    budget: Budget

    def getitem(self, obj: Any, argument: Any) -> Any:
        """obj[argument]"""

    def add(self, left: Any, right: Any) -> Any:
        """left + right"""


def filters_of(sandbox: SandboxOperations) -> dict[str, Callable[..., Any]]:
    """The filters of a sandbox, by name."""
    found = {
        name: _counted(sandbox, function, name)
        for name, function in FILTERS.items()
        if name not in _LEFT_OUT
    }
    own: dict[str, Callable[..., Any]] = {
        "tojson": to_json,
        "sum": functools.partial(_sum, sandbox),
    }
    for name, function in own.items():
        found[name] = _counted(sandbox, function, name)
    return found


def tests_of(sandbox: SandboxOperations) -> dict[str, Any]:
    """The tests of a sandbox that go through their arguments, by name."""

    def counted(test: Any) -> Any:
        def apply(*args: Any) -> Any:
            for value in args:
                sandbox.budget.compare(value)
            return test(*args)

        return apply

    return {name: counted(TESTS[name]) for name in _READING}


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers writes it: no escaping for HTML, no ASCII escapes."""
    if isinstance(indent, str):
        indent = indent[:_MAX_INDENT]
    elif indent is not None:
        indent = min(int(indent), _MAX_INDENT)
    if separators is not None and sum(len(str(part)) for part in separators) > _MAX_INDENT:
        raise LimitExceeded(f"the separators of tojson have more than {_MAX_INDENT} characters")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _sum(sandbox: SandboxOperations, iterable: Any, attribute: Any = None, start: Any = 0) -> Any:
    total = start
    for item in iterable:
        sandbox.budget.steps(1)
        for part in str(attribute).split(".") if attribute is not None else ():
            item = sandbox.getitem(item, int(part) if part.isdigit() else part)
        total = sandbox.add(total, item)
    return total


def _counted(
    sandbox: SandboxOperations, function: Callable[..., Any], name: str
) -> Callable[..., Any]:
    """A filter that asks the budget for what it is given before it runs."""
    skipped = 1 if hasattr(function, "jinja_pass_arg") else 0
    guard, attribute = _GUARDS.get(name), _ATTRIBUTE.get(name)
    at_once, by_element = name in _AT_ONCE, name in _BY_ELEMENT

    def apply(*args: Any, **kwargs: Any) -> Any:
        budget = sandbox.budget
        budget.steps(1)
        head, given = args[:skipped], args[skipped:]
        if guard is not None:
            changed = guard(budget, *given, **kwargs)
            given = given if changed is None else (changed, *given[1:])
        if attribute is not None:
            _check_names(kwargs.get("attribute", given[attribute : attribute + 1]))
        if given and not at_once:
            given = ((budget.go_through if by_element else budget.compare)(given[0]), *given[1:])
            for value in (*given[1:], *kwargs.values()):
                budget.compare(value)
        return budget.keep(function(*head, *given, **kwargs))

    if skipped:
        apply.jinja_pass_arg = function.jinja_pass_arg  # type: ignore[attr-defined]
    return apply


def _check_names(attribute: Any) -> None:
    names = str(attribute)
    if names.count(".") + names.count(",") >= _MAX_NAMES:
        raise LimitExceeded(f"the attribute of a filter has more than {_MAX_NAMES} names")
    if len(names) > _MAX_NAMES_SIZE:
        raise LimitExceeded(f"the attribute of a filter has more than {_MAX_NAMES_SIZE} characters")


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple | dict) else 0


def _indent(budget: Budget, value: Any, width: int | str = 4, *_: Any, **__: Any) -> None:
    each = len(width) if isinstance(width, str) else int(width)
    lines = str(value).count("\n") + 1
    budget.check_size(len(str(value)) + lines * each)
    budget.steps(lines // 4)


def _replace(budget: Budget, value: Any, old: Any = "", new: Any = "", *_: Any, **__: Any) -> None:
    budget.check_size(replaced_size(str(value), old, new))


def _join(budget: Budget, value: Any, d: Any = "", *_: Any, **__: Any) -> Any:
    items = value if isinstance(value, str | list | tuple | dict) else list(value)
    budget.check_size(len(items) * len(str(d)) + budget.measure(items))
    budget.go_through(items)
    return items


def _round(_budget: Budget, _value: Any, precision: int = 0, *_: Any, **__: Any) -> None:
    if abs(int(precision)) > _MAX_PRECISION:
        raise LimitExceeded(
            f"round({precision}) is not allowed; the most are {_MAX_PRECISION} digits"
        )


def _grouped(budget: Budget, value: Any, count: int = 1, *_: Any, **__: Any) -> None:
    budget.check_size(int(count) + _OBJECT_SIZE * _size(value))


def _characters(budget: Budget, value: Any, *_: Any, **__: Any) -> None:
    if isinstance(value, str):
        budget.check_size(_OBJECT_SIZE * len(value))


def _escaped(budget: Budget, value: Any, *_: Any, **__: Any) -> None:
    budget.check_size(9 * budget.measure(value))


def _written(budget: Budget, value: Any, *_: Any, **__: Any) -> None:
    size = budget.measure(value)
    budget.check_size(size)
    budget.write(size)


def _titled(budget: Budget, value: Any, *_: Any, **__: Any) -> None:
    budget.write(8 * len(str(value)))


def _compared(budget: Budget, value: Any, *_: Any, **__: Any) -> None:
    _characters(budget, value)
    budget.steps(2 * _size(value))


_GUARDS: Final[Mapping[str, Callable[..., Any]]] = {
    "batch": _grouped,
    "center": lambda budget, value, width=80: budget.check_size(max(_size(value), int(width))),
    "e": _escaped,
    "escape": _escaped,
    "forceescape": _escaped,
    "format": lambda budget, value, *args, **kwargs: check_percent(
        budget, str(value), [*args, *kwargs.values()]
    ),
    "groupby": _compared,
    "indent": _indent,
    "join": _join,
    "list": _characters,
    "max": _compared,
    "min": _compared,
    "replace": _replace,
    "round": _round,
    "slice": _grouped,
    "sort": _compared,
    "string": _written,
    "tojson": _written,
    "title": _titled,
    "unique": _compared,
    "urlencode": _escaped,
}
