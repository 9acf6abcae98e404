"""The functions that every Go template has (text/template/funcs.go): and, eq, index, printf, ...

and and or stop early, so the compiler carries them out; they stand here for their parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from modelfile.templates.budget import Budget
from modelfile.templates.gotemplate.errors import CallFault
from modelfile.templates.gotemplate.formatter import print_value, sprint, sprintf
from modelfile.templates.gotemplate.values import (
    NIL,
    GoMap,
    GoSlice,
    GoStruct,
    Uint8,
    byte_length,
    is_missing,
    kind,
    to_bytes,
    to_text,
    truth,
    type_name,
)

_NO_TYPE: Final = "reflect: call of reflect.Value.Type on zero Value"
_BASIC: Final = frozenset(("bool", "int", "uint", "float", "string"))
_BAD_TYPE: Final = "invalid type for comparison"


@dataclass(frozen=True, slots=True)
class TemplateFunction:
    """A function of templates. call: gets the budget and the arguments. parameters: "value" takes
    anything as it is, "any" takes nil for nothing, "string" wants a string; of a variadic function
    the last one repeats."""

    call: Callable[..., Any]
    parameters: tuple[str, ...]
    variadic: bool = False

    def parameter(self, number: int) -> str:
        """What the argument of that number, from 0, must be."""
        return self.parameters[min(number, len(self.parameters) - 1)]


def index(_budget: Budget, item: Any, *places: Any) -> Any:
    """item[a][b]... Raises CallFault."""
    if item is None or item is NIL:
        raise CallFault("index of untyped nil")
    for place in places:
        if item is None or item is NIL:
            raise CallFault("index of nil pointer")
        item = _element(item, place)
    return item


def _element(item: Any, place: Any) -> Any:
    shape = kind(item)
    if shape in ("slice", "string"):
        data = to_bytes(item) if isinstance(item, str) else item
        at = _position(place, len(data))
        if at == len(data):
            raise CallFault(f"reflect: {shape} index out of range")
        return Uint8(data[at]) if isinstance(data, bytes) else data[at]
    if shape == "map":
        if not isinstance(place, str):
            given = "value is nil; should be of type" if is_missing(place) else (
                f"value has type {type_name(place)}; should be")  # fmt: skip
            raise CallFault(f"{given} string")
        missing = item.zero() if isinstance(item, GoMap) else NIL
        return item.get(place, missing)
    raise CallFault(f"can't index item of type {type_name(item).lstrip('*')}")


def _position(place: Any, capacity: int) -> int:
    shape = kind(place)
    if shape == "invalid":
        raise CallFault("cannot index slice/array with nil")
    if shape not in ("int", "uint"):
        raise CallFault(f"cannot index slice/array with type {type_name(place)}")
    if not 0 <= place <= capacity:
        raise CallFault(f"index out of range: {place}")
    return int(place)


def slice_(budget: Budget, item: Any, *places: Any) -> Any:
    """item[a:b]. Raises CallFault."""
    if is_missing(item):
        raise CallFault("slice of untyped nil")
    if len(places) > 3:
        raise CallFault(f"too many slice indexes: {len(places)}")
    shape = kind(item)
    if shape not in ("slice", "string"):
        raise CallFault(f"can't slice item of type {type_name(item).lstrip('*')}")
    if shape == "string" and len(places) == 3:
        raise CallFault("cannot 3-index slice a string")
    bytewise = isinstance(item, str) and not item.isascii()
    data = to_bytes(item) if bytewise else item
    bounds = [_position(place, len(data)) for place in places]
    first, last, *capacity = [0, len(data)] if not bounds else [*bounds, len(data)][: max(
        2, len(bounds))]  # fmt: skip
    for low, high in ((first, last), *((last, top) for top in capacity)):
        if low > high:
            raise CallFault(f"invalid slice index: {low} > {high}")
    part = data[first:last]
    budget.steps(len(part) >> 5)  # copying costs time
    if isinstance(item, GoSlice):
        return type(item)(part)
    return to_text(part) if bytewise else part


def length(_budget: Budget, item: Any) -> int:
    """How many bytes or elements. Raises CallFault."""
    if item is NIL:
        raise CallFault("len of nil pointer")
    if isinstance(item, str):
        return byte_length(item)
    if isinstance(item, list | dict | bytes):
        return len(item)
    if item is None:
        raise CallFault(_NO_TYPE)
    raise CallFault(f"len of type {type_name(item).lstrip('*')}")


def eq(_budget: Budget, first: Any, *others: Any) -> bool:
    """Whether one of others equals first. Raises CallFault."""
    if not others:
        raise CallFault("missing argument for comparison")
    return any(_equal(first, other) for other in others)


def _equal(first: Any, other: Any) -> bool:
    left, right = _basic_kind(first), _basic_kind(other)
    if left != right:
        if {left, right} == {"int", "uint"}:
            return bool(first == other)
        if is_missing(first) or is_missing(other):
            return False
        raise CallFault(
            f"incompatible types for comparison: {type_name(first)} and {type_name(other)}"
        )
    if left is not None:
        return bool(first == other)
    return _equal_others(first, other)


def _equal_others(first: Any, other: Any) -> bool:
    if is_missing(first) or is_missing(other):
        return _is_nil(first) and _is_nil(other)
    if kind(first) != kind(other):
        left, right = print_value(first, "s"), sprint([other])
        raise CallFault(
            f"non-comparable types {left}: {type_name(first)}, {type_name(other)}: {right}"
        )
    if _is_nil(first) or _is_nil(other):
        return _is_nil(first) == _is_nil(other)
    if isinstance(other, GoStruct) and other.pointer:
        return first is other
    raise CallFault(f"non-comparable type {print_value(other, 's')}: {type_name(other)}")


def _is_nil(value: Any) -> bool:
    return is_missing(value) or (isinstance(value, GoSlice | GoMap) and value.is_nil)


def _basic_kind(value: Any) -> str | None:
    shape = kind(value)
    return shape if shape in _BASIC else None


def _less(first: Any, other: Any) -> bool:
    left, right = _basic_kind(first), _basic_kind(other)
    if left is None or right is None:
        raise CallFault(_BAD_TYPE)
    if left != right and {left, right} != {"int", "uint"}:
        raise CallFault(
            f"incompatible types for comparison: {type_name(first)} and {type_name(other)}"
        )
    if left == "bool":
        raise CallFault(_BAD_TYPE)
    if left == "string" and not (first.isascii() and other.isascii()):
        return to_bytes(first) < to_bytes(other)
    return bool(first < other)


def _print(budget: Budget, *values: Any) -> str:
    text = sprint(values, check_size=budget.check_size)
    budget.write(len(text))
    return text


def _printf(budget: Budget, form: str, *values: Any) -> str:
    budget.steps(form.count("%"))
    return sprintf(form, values, budget.check_size)


_ANY: Final = ("any",)
_VALUE: Final = ("value",)
_TWO: Final = ("value", "value")
BUILTINS: Final[Mapping[str, TemplateFunction]] = {
    "and": TemplateFunction(truth, _VALUE, variadic=True),
    "or": TemplateFunction(truth, _VALUE, variadic=True),
    "index": TemplateFunction(index, _TWO, variadic=True),
    "slice": TemplateFunction(slice_, _TWO, variadic=True),
    "len": TemplateFunction(length, _VALUE),
    "not": TemplateFunction(lambda _budget, value: not truth(value), _VALUE),
    "print": TemplateFunction(_print, _ANY, variadic=True),
    "printf": TemplateFunction(_printf, ("string", "any"), variadic=True),
    "eq": TemplateFunction(eq, _TWO, variadic=True),
    "ge": TemplateFunction(lambda _budget, a, b: not _less(a, b), _TWO),
    "gt": TemplateFunction(lambda _budget, a, b: not (_less(a, b) or _equal(a, b)), _TWO),
    "le": TemplateFunction(lambda _budget, a, b: _less(a, b) or _equal(a, b), _TWO),
    "lt": TemplateFunction(lambda _budget, a, b: _less(a, b), _TWO),
    "ne": TemplateFunction(lambda _budget, a, b: not _equal(a, b), _TWO),
}
REPEATABLE: Final = {"and": 1, "or": 1, "index": 1, "slice": 1, "eq": 1, "printf": 1}
"""How many arguments a variadic function needs at least; the others need none."""
UNSUPPORTED: Final = frozenset(("call", "html", "js", "println", "urlquery"))
"""Functions of Go that no published chat template uses."""
