"""Frozen dataclasses from what JSON made of them, by the types of their fields.

A field that is added to one needs nothing here: tuples, mappings, bytes and other dataclasses are
found by the annotation. What JSON has itself is taken as it is.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

ValueT = TypeVar("ValueT")
_Decoder = Callable[[Any], Any]


def from_json_values(cls: type[ValueT], value: Mapping[str, Any]) -> ValueT:
    """The dataclass that dataclasses.asdict made value of, bytes in base64. Raises TypeError for
    fields that it does not have."""
    decoders = _decoders(cls)  # type: ignore[arg-type]  # mypy: a type is hashable
    fields = {
        name: decoders[name](each) if name in decoders else each for name, each in value.items()
    }
    return cls(**fields)


@functools.cache
def _decoders(cls: Any) -> dict[str, _Decoder]:
    """For each field whose values JSON has in another form."""
    found = ((name, _decoder(hint)) for name, hint in typing.get_type_hints(cls).items())
    return {name: decoder for name, decoder in found if decoder is not None}


def _decoder(hint: Any) -> _Decoder | None:
    """None: values of this type stay as they are."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        decoder = next(filter(None, map(_decoder, arguments)), None)
        return None if decoder is None else functools.partial(_optional, decoder)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return functools.partial(_items, _decoder(arguments[0]))
        return functools.partial(_pair, [_decoder(each) for each in arguments])
    if origin is Mapping and arguments[0] is int:
        return functools.partial(_numbered, _decoder(arguments[1]))
    if hint is bytes:
        return base64.b64decode
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return functools.partial(from_json_values, hint)
    return None


def _optional(decoder: _Decoder, value: Any) -> Any:
    return None if value is None else decoder(value)


def _items(decoder: _Decoder | None, value: list[Any]) -> tuple[Any, ...]:
    return tuple(value) if decoder is None else tuple(map(decoder, value))


def _pair(decoders: list[_Decoder | None], value: list[Any]) -> tuple[Any, ...]:
    both = zip(decoders, value, strict=True)
    return tuple(each if decoder is None else decoder(each) for decoder, each in both)


def _numbered(decoder: _Decoder | None, value: Mapping[str, Any]) -> dict[int, Any]:
    """A mapping by numbers, which are text in JSON."""
    return {int(key): each if decoder is None else decoder(each) for key, each in value.items()}
