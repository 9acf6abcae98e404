"""Dataclasses as JSON values and back, by the types of their fields.

A new field needs nothing here, unless its type is new: what is known are numbers, texts, bytes (as
base64), Literal, tuples, mappings of JSON values, dataclasses, and all of these or None. Large
texts and bytes stay what they are, for whoever sends the JSON.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
LARGE = 64 * 1024  # characters or bytes
_SCALARS = (int, float, str, bool)


class Large:
    """A text or bytes that go beside the JSON, piece by piece: all at once they would hold up
    everything else, and be there several times."""

    __slots__ = ("value",)

    def __init__(self, value: str | bytes) -> None:
        self.value = value


class _Codec(NamedTuple):
    """encode None: the value is JSON already."""

    encode: Callable[[Any], Any] | None
    decode: Callable[[Any], Any]


def to_json(value: Any) -> Any:
    """A dataclass as JSON values."""
    kind: Any = type(value)
    encode = _codec(kind).encode
    return value if encode is None else encode(value)


def from_json(kind: type[T], value: Any) -> T:
    """The inverse of to_json. Raises TypeError or ValueError for what is no kind."""
    hint: Any = kind
    decoded: T = _codec(hint).decode(value)
    return decoded


@cache
def _codec(hint: Any) -> _Codec:
    origin, arguments = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint)
    if hint is bytes:
        return _Codec(bytes_to_json, bytes_from_json)
    if origin in (UnionType, Union):  # a Literal or None is the latter
        kinds = [item for item in arguments if item is not NoneType]
        if len(kinds) == 1:
            return _optional(_codec(kinds[0]))
        if all(item in _SCALARS for item in kinds):
            return _Codec(None, _checked(lambda value: isinstance(value, arguments), hint))
    if origin is tuple:
        return _sequence(arguments[0]) if arguments[-1] is ... else _tuple(arguments)
    if origin is Literal:  # of texts; a wrong one is refused where it is used
        return _Codec(None, _codec(str).decode)
    if hint is float:
        return _Codec(None, _checked(lambda value: type(value) in (float, int), hint))
    if hint is str:
        return _Codec(text_to_json, _checked(lambda value: type(value) is str, hint))
    if hint in (int, bool):
        return _Codec(None, _checked(lambda value: type(value) is hint, hint))
    if origin is Mapping and arguments[0] is int:
        return _numbered(arguments[1])
    if origin is Mapping:
        return _Codec(None, _checked(lambda value: isinstance(value, dict), hint))
    raise TypeError(f"no JSON for {hint}")


def text_to_json(value: str) -> str | Large:
    """A text as it is, unless it is a large one."""
    return Large(value) if len(value) > LARGE else value


def bytes_to_json(value: bytes) -> str | Large:
    """Bytes as base64, unless they are many."""
    return Large(value) if len(value) > LARGE else base64.b64encode(value).decode("ascii")


def bytes_from_json(value: str | bytes) -> bytes:
    """The inverse. Raises ValueError."""
    return value if isinstance(value, bytes) else base64.b64decode(value)


def _checked(fits: Callable[[Any], bool], hint: Any) -> Callable[[Any], Any]:
    def decode(value: Any) -> Any:
        if not fits(value):
            raise TypeError(f"{str(value)[:40]!r} is not {hint}")
        return value

    return decode


def _optional(inner: _Codec) -> _Codec:
    encode, decode = inner
    return _Codec(
        None if encode is None else lambda value: None if value is None else encode(value),
        lambda value: None if value is None else decode(value),
    )


def _item(hint: Any) -> tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]:
    """How an item of a tuple is encoded and decoded; None: it stays as it is. Numbers and texts are
    not checked: there are many."""
    encode, decode = _codec(hint)
    return encode, None if hint in _SCALARS else decode


def _sequence(hint: Any) -> _Codec:
    encode, decode = _item(hint)
    return _Codec(
        None if encode is None else lambda value: [encode(item) for item in value],
        tuple if decode is None else lambda value: tuple(decode(item) for item in value),
    )


def _tuple(hints: tuple[Any, ...]) -> _Codec:
    items = [_item(hint) for hint in hints]
    encoders = [(at, encode) for at, (encode, _) in enumerate(items) if encode is not None]
    decoders = [(at, decode) for at, (_, decode) in enumerate(items) if decode is not None]

    def encode(value: tuple[Any, ...]) -> list[Any]:
        found = list(value)
        for at, encode_item in encoders:
            found[at] = encode_item(found[at])
        return found

    def decode(value: list[Any]) -> tuple[Any, ...]:
        if len(value) != len(items):
            raise ValueError(f"{len(value)} values instead of {len(items)}")
        found = list(value)
        for at, decode_item in decoders:
            found[at] = decode_item(found[at])
        return tuple(found)

    return _Codec(encode if encoders else None, decode)


def _numbered(hint: Any) -> _Codec:
    """A mapping by numbers, which are texts in JSON."""
    encode, decode = _codec(hint)
    return _Codec(
        None
        if encode is None
        else lambda value: {key: encode(item) for key, item in value.items()},
        lambda value: {int(key): decode(item) for key, item in value.items()},
    )


def _dataclass(kind: Any) -> _Codec:
    hints = get_type_hints(kind)
    codecs = {item.name: _codec(hints[item.name]) for item in dataclasses.fields(kind)}
    encoders = [
        (item.name, item.default, codecs[item.name].encode) for item in dataclasses.fields(kind)
    ]

    def encode(value: Any) -> dict[str, Any]:
        """What has its default is left out: most fields of a request, and decode adds them."""
        found = {}
        for name, default, encode_item in encoders:
            item = getattr(value, name)
            if item is not default:
                found[name] = item if encode_item is None else encode_item(item)
        return found

    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            raise TypeError(f"{str(value)[:40]!r} is not an object")
        unknown = value.keys() - codecs.keys()
        if unknown:
            raise TypeError(f"{kind.__name__} has no field {min(unknown)[:40]!r}")
        return kind(**{name: codecs[name].decode(item) for name, item in value.items()})

    return _Codec(encode, decode)
