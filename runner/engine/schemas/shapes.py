"""What a schema says of the values of one JSON type, as a conjunction.

A schema is a list of shapes, of which a value must have one. Shapes are negated here, each within
its type; what two of them have in common is in meeting.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from runner.engine.schemas.expressions import Expression, negated

Number = int | float


@dataclass(frozen=True, slots=True)
class Null:
    """null."""


@dataclass(frozen=True, slots=True)
class Boolean:
    """true and false, or one of them."""

    values: tuple[bool, ...] = (True, False)


@dataclass(frozen=True, slots=True)
class Num:
    """Numbers. whole: integers only (True), or none of them. open: the bound itself is out. broken:
    what it must be no multiple of."""

    whole: bool | None = None
    low: Number | None = None
    low_open: bool = False
    high: Number | None = None
    high_open: bool = False
    multiples: tuple[Number, ...] = ()
    values: tuple[Number, ...] | None = None
    broken: tuple[Number, ...] = ()


@dataclass(frozen=True, slots=True)
class Str:
    """Texts. without: patterns that must not be found. excluded: texts that it must not be. unlike:
    formats that it must not have."""

    low: int = 0
    high: int | None = None
    patterns: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    values: tuple[str, ...] | None = None
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Some:
    """So many items from start on must match: at least low, and at most high."""

    item: Expression
    start: int
    path: str
    low: int = 1
    high: int | None = None


@dataclass(frozen=True, slots=True)
class Arr:
    """Arrays. rest: of the items behind prefix. unique: all items differ (True), or two are equal.
    evaluated: so many first items are known to this schema, None: all."""

    prefix: tuple[Expression, ...] = ()
    rest: Expression = True
    low: int = 0
    high: int | None = None
    unique: bool | None = None
    some: tuple[Some, ...] = ()
    evaluated: int | None = 0


@dataclass(frozen=True, slots=True)
class Other:
    """A property with this value must be there, that is none of these and matches none of the
    patterns; or one that matches only; or one whose name matches none of the expressions. Where it
    has absent or values: one of those is not there, or one has the value for it here."""

    keyword: str
    path: str
    names: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()
    only: str | None = None
    unnamed: tuple[Expression, ...] = ()
    value: Expression = True
    absent: tuple[str, ...] = ()
    values: tuple[tuple[str, Expression], ...] = ()

    @property
    def is_listed(self) -> bool:
        """Whether it asks for one of some known properties."""
        return bool(self.absent or self.values)


@dataclass(frozen=True, slots=True)
class Obj:
    """Objects. extra: of the properties that are not known and match no pattern. names: what all
    names must match, as texts. evaluated: the names and the patterns (with True before them) that
    are known to this schema; None: all."""

    known: tuple[tuple[str, Expression], ...] = ()
    patterns: tuple[tuple[str, Expression], ...] = ()
    extra: Expression = True
    required: tuple[str, ...] = ()
    low: int = 0
    high: int | None = None
    names: tuple[Expression, ...] = ()
    others: tuple[Other, ...] = ()
    evaluated: frozenset[tuple[bool, str]] | None = frozenset()


Shape = Null | Boolean | Num | Str | Arr | Obj
ANY: tuple[Shape, ...] = (Null(), Boolean(), Num(), Str(), Arr(), Obj())


def opposites(shape: Shape, path: str, *, joined: bool) -> Iterator[Shape]:
    """What of the shape's type does not have it. path: of its schema, for messages. joined: an
    object that breaks one of several rules is one shape. Raises Unsupported."""
    if isinstance(shape, Boolean):
        left = tuple(value for value in (True, False) if value not in shape.values)
        if left:
            yield Boolean(left)
    elif isinstance(shape, Num):
        yield from _other_numbers(shape)
    elif isinstance(shape, Str):
        yield from _other_texts(shape)
    elif isinstance(shape, Arr):
        yield from _other_arrays(shape, path)
    elif isinstance(shape, Obj):
        yield from _other_objects(shape, path, joined=joined)


def _other_numbers(shape: Num) -> Iterator[Shape]:
    if shape.values is not None:
        bounds = [None, *sorted(shape.values), None]
        for low, high in itertools.pairwise(bounds):
            yield Num(low=low, low_open=low is not None, high=high, high_open=high is not None)
        return
    for multiple in shape.multiples:
        yield Num(broken=(multiple,))
    for multiple in shape.broken:
        yield Num(multiples=(multiple,))
    if shape.whole is not None:
        yield Num(whole=not shape.whole)
    if shape.low is not None:
        yield Num(high=shape.low, high_open=not shape.low_open)
    if shape.high is not None:
        yield Num(low=shape.high, low_open=not shape.high_open)


def _other_texts(shape: Str) -> Iterator[Shape]:
    for name in shape.formats:
        yield Str(unlike=(name,))
    for name in shape.unlike:
        yield Str(formats=(name,))
    if shape.values is not None:
        yield Str(excluded=shape.values)
        return
    if shape.excluded:
        yield Str(values=shape.excluded)
    for pattern in shape.patterns:
        yield Str(without=(pattern,))
    for pattern in shape.without:
        yield Str(patterns=(pattern,))
    if shape.low:
        yield Str(high=shape.low - 1)
    if shape.high is not None:
        yield Str(low=shape.high + 1)


def _other_arrays(shape: Arr, path: str) -> Iterator[Shape]:
    if shape.unique is not None:
        yield Arr(unique=not shape.unique)
    if shape.low:
        yield Arr(high=shape.low - 1)
    if shape.high is not None:
        yield Arr(low=shape.high + 1)
    for index, item in enumerate(shape.prefix):
        if item is not True:
            yield Arr(prefix=(*(True,) * index, negated(item)), low=index + 1)
    if shape.rest is not True:
        yield Arr(some=(Some(negated(shape.rest), len(shape.prefix), path),))
    for some in shape.some:
        if some.low == 1:
            yield Arr(prefix=(True,) * some.start, rest=negated(some.item))
        elif some.low:
            yield Arr(some=(replace(some, low=0, high=some.low - 1),))
        if some.high is not None:
            yield Arr(some=(replace(some, low=some.high + 1, high=None),))


def _other_objects(shape: Obj, path: str, *, joined: bool) -> Iterator[Shape]:
    values = tuple((name, negated(value)) for name, value in shape.known if value is not True)
    if joined and len(values) + len(shape.required) > 1:
        yield _with_other(Other("properties", path, absent=shape.required, values=values))
    else:
        for name in shape.required:
            yield Obj(known=((name, False),))
        for name, value in values:
            yield Obj(known=((name, value),), required=(name,))
    for pattern, value in shape.patterns:
        if value is not True:
            names = frozenset(name for name, _ in shape.known)
            yield _with_other(Other("patternProperties", path, names, only=pattern,
                                    value=negated(value)))  # fmt: skip
    if shape.extra is not True:
        names = frozenset(name for name, _ in shape.known)
        patterns = tuple(pattern for pattern, _ in shape.patterns)
        yield _with_other(Other("additionalProperties", path, names, patterns,
                                value=negated(shape.extra)))  # fmt: skip
    for part in shape.names:
        yield _with_other(Other("propertyNames", path, unnamed=(part,)))
    for other in shape.others:
        yield _without(other)
    if shape.low:
        yield Obj(high=shape.low - 1)
    if shape.high is not None:
        yield Obj(low=shape.high + 1)


def _with_other(other: Other) -> Obj:
    return Obj(others=(other,))


def _without(other: Other) -> Obj:
    if other.is_listed:
        known = tuple((name, negated(value)) for name, value in other.values)
        return Obj(known=known, required=other.absent)
    value = negated(other.value)
    if other.unnamed:
        return Obj(names=other.unnamed)
    free = tuple((name, True) for name in sorted(other.names))
    if other.only is not None:
        return Obj(known=free, patterns=((other.only, value),))
    return Obj(known=free, patterns=tuple((one, True) for one in other.patterns), extra=value)
