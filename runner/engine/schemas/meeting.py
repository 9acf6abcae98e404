"""What two shapes of one type have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from runner.engine.schemas.expressions import Expression, Unsupported, all_of, negated
from runner.engine.schemas.shapes import Arr, Boolean, Null, Num, Number, Obj, Other, Shape, Str
from runner.engine.schemas.texts import Texts

_MAX_LOOKED_INTO = 1  # properties, to know whether an object includes another one


class Meeting:
    """Meets shapes. is_empty: whether nothing matches an expression. shapes_of: its shapes."""

    def __init__(
        self,
        texts: Texts,
        is_empty: Callable[[Expression], bool],
        shapes_of: Callable[[Expression], Sequence[Shape]],
    ) -> None:
        self._texts = texts
        self._is_empty = is_empty
        self._shapes_of = shapes_of

    def meet(self, one: Shape, other: Shape) -> Shape | None:
        """The shape that is both; None: nothing is. Raises Unsupported."""
        if isinstance(one, Null) and isinstance(other, Null):
            return one
        if isinstance(one, Boolean) and isinstance(other, Boolean):
            left = tuple(value for value in one.values if value in other.values)
            return Boolean(left) if left else None
        if isinstance(one, Num) and isinstance(other, Num):
            both = _numbers(one, other)
            return None if both is None else self.number(both)
        if isinstance(one, Str) and isinstance(other, Str):
            return self.text(_strings(one, other))
        if isinstance(one, Arr) and isinstance(other, Arr):
            if None not in (one.unique, other.unique) and one.unique != other.unique:
                return None
            return self.array(_arrays(one, other))
        if isinstance(one, Obj) and isinstance(other, Obj):
            return self.object(self._objects(one, other))
        return None

    def includes(self, one: Shape, other: Shape) -> bool:
        """Whether it is known that the other one is part of this one."""
        if isinstance(one, Obj) and isinstance(other, Obj):
            return self._includes_object(one, other)
        if isinstance(one, Arr) and isinstance(other, Arr):
            return one.unique in (None, other.unique) and _arrays(other, one) == other
        if isinstance(one, Str) and isinstance(other, Str):
            return _strings(other, one) == other
        if isinstance(one, Num) and isinstance(other, Num):
            return _numbers(other, one) == other
        return one == other

    def _includes_object(self, one: Obj, other: Obj) -> bool:
        if not {*one.required} <= {*other.required} or one.patterns != other.patterns:
            return False
        both = self._objects(other, one)
        if replace(both, known=()) != replace(other, known=()):
            return False
        parts = [(self.at(other, name), self.at(one, name)) for name, _ in both.known]
        left = [pair for pair in parts if all_of(pair) != pair[0]]
        return len(left) <= _MAX_LOOKED_INTO and all(
            self._is_empty(all_of([inner, negated(outer)])) for inner, outer in left
        )

    def number(self, shape: Num) -> Num | None:
        """The same without values that do not fit; None: nothing fits."""
        if shape.values is not None:
            values = tuple(value for value in shape.values if _fits(value, shape))
            return Num(values=values) if values else None
        if not {*shape.multiples}.isdisjoint(shape.broken):
            return None
        if shape.low is not None and shape.high is not None:
            if shape.low > shape.high:
                return None
            if shape.low == shape.high:
                single = _plain(shape.low)
                return Num(values=(single,)) if _fits(single, shape) else None
        return shape

    def text(self, shape: Str) -> Str | None:
        """See number."""
        if shape.values is not None:
            bare = replace(shape, values=None)
            values = tuple(value for value in shape.values if self._texts.has(bare, value))
            bare = Str(values=values, formats=shape.formats, unlike=shape.unlike)
            return bare if values else None
        if shape.high is not None and shape.low > shape.high:
            return None
        if not {*shape.formats}.isdisjoint(shape.unlike):
            return None
        many = len(shape.patterns) + len(shape.without) > 1
        if many and self._texts.apart(shape.patterns, shape.without):
            return None
        return shape

    def array(self, shape: Arr) -> Arr | None:
        """See number."""
        if shape.unique is False and shape.high is not None and shape.high < 2:
            return None
        for index, item in enumerate(shape.prefix):
            if (shape.high is None or index < shape.high) and self._is_empty(item):
                shape = replace(shape, prefix=shape.prefix[:index], rest=False, high=index)
                break
        if shape.rest is not True and self._is_empty(shape.rest):
            high = len(shape.prefix) if shape.high is None else min(len(shape.prefix), shape.high)
            shape = replace(shape, rest=False, high=high)
        for one in shape.some:
            if one.high is not None and one.low > one.high:
                return None
            if shape.high is not None and one.low > max(shape.high - one.start, 0):
                return None
        impossible = shape.high is not None and shape.low > shape.high
        return None if impossible else shape

    def object(self, shape: Obj) -> Obj | None:
        """See number."""
        if shape.names and shape.required:
            for name in shape.required:
                if not self.name_fits(name, shape):
                    return None
        for name in shape.required:
            if self._is_empty(self.at(shape, name)):
                return None
        closed = shape.extra is False and not shape.patterns
        if any(self._is_met(shape, other) for other in shape.others):
            left = tuple(other for other in shape.others if not self._is_met(shape, other))
            shape = replace(shape, others=left)
        for other in shape.others:
            is_there = self.chosen(shape, other) or self.unknown_chosen(shape, other)
            if not is_there and {*other.absent} <= {*shape.required}:
                return None
        if shape.high is not None and max(shape.low, len(shape.required)) > shape.high:
            return None
        possible_count = sum(value is not False for _, value in shape.known)
        return None if closed and shape.low > possible_count else shape

    def _is_met(self, shape: Obj, other: Other) -> bool:
        return any(self.at(shape, name) is False for name in other.absent)

    def chosen(self, shape: Obj, other: Other) -> list[str]:
        """The known properties that may be the other one that must be there."""
        if other.is_listed:
            return [name for name, value in other.values
                    if not self._is_empty(all_of([self.at(shape, name), value]))]  # fmt: skip
        return [
            name
            for name, value in shape.known
            if name not in other.names
            and not any(self._texts.matches(one, name) for one in other.patterns)
            and (other.only is None or self._texts.matches(other.only, name))
            and not (other.unnamed and self.name_fits(name, Obj(names=other.unnamed)))
            and not self._is_empty(all_of([value, other.value]))
        ]

    def unknown_chosen(self, shape: Obj, other: Other) -> bool:
        """Whether a property that is not known may be it."""
        if other.is_listed:
            return False
        values = [shape.extra]
        for pattern, value in shape.patterns:
            if other.only is None or not self._texts.apart((pattern, other.only)):
                values.append(value)
        return not all(self._is_empty(all_of([value, other.value])) for value in values)

    def name_fits(self, name: str, shape: Obj) -> bool:
        """Whether propertyNames allows a name."""
        literal = Str(values=(name,))
        return all(
            any(
                self.meet(literal, each) is not None
                for each in self._shapes_of(part)
                if isinstance(each, Str)
            )
            for part in shape.names
        )

    def at(self, shape: Obj, name: str) -> Expression:
        """What the value of a property must match."""
        for known, value in shape.known:
            if known == name:
                return value
        found = [value for one, value in shape.patterns if self._texts.matches(one, name)]
        return all_of(found) if found else shape.extra

    def with_patterns(self, shape: Shape) -> Shape:
        """The same, with what patterns say of known properties said of these. A pattern that cannot
        be taken apart is left to who reads what is written."""
        if not isinstance(shape, Obj) or not shape.patterns:
            return shape
        known = tuple((name, all_of([value, *self.patterns_of(shape, name)]))
                      for name, value in shape.known)  # fmt: skip
        return replace(shape, known=known)

    def patterns_of(self, shape: Obj, name: str) -> list[Expression]:
        """What the patterns say that are found in a name, as far as this can be known."""
        try:
            return [value for one, value in shape.patterns if self._texts.matches(one, name)]
        except Unsupported:
            return []

    def _objects(self, one: Obj, other: Obj) -> Obj:
        names = dict.fromkeys([name for name, _ in (*one.known, *other.known)])
        return Obj(
            known=tuple((name, all_of([self.at(one, name), self.at(other, name)]))
                        for name in names),
            patterns=self._patterns(one, other),
            extra=all_of([one.extra, other.extra]),
            required=tuple(dict.fromkeys((*one.required, *other.required))),
            low=max(one.low, other.low),
            high=_least(one.high, other.high),
            names=tuple(dict.fromkeys((*one.names, *other.names))),
            others=tuple(dict.fromkeys((*one.others, *other.others))),
            evaluated=None if one.evaluated is None or other.evaluated is None
            else one.evaluated | other.evaluated,
        )  # fmt: skip

    def _patterns(self, one: Obj, other: Obj) -> tuple[tuple[str, Expression], ...]:
        found: dict[str, Expression] = {}
        for mine, theirs in ((one, other), (other, one)):
            foreign = dict(theirs.patterns)
            for pattern, value in mine.patterns:
                parts = [found.get(pattern, True), value]
                if pattern not in foreign and theirs.extra is not True:
                    if not all(self._texts.apart((pattern, each)) for each in foreign):
                        raise Unsupported(
                            "`patternProperties` that overlap, with `additionalProperties`, are"
                            " not supported"
                        )
                    parts.append(theirs.extra)
                found[pattern] = all_of(parts)
        return tuple(found.items())


def _numbers(one: Num, other: Num) -> Num | None:
    if None not in (one.whole, other.whole) and one.whole != other.whole:
        return None
    low, low_open = max(_low(one), _low(other))
    high, high_open = min(_high(one), _high(other))
    return Num(
        whole=other.whole if one.whole is None else one.whole,
        low=None if low == -math.inf else low,
        low_open=low_open,
        high=None if high == math.inf else high,
        high_open=not high_open and high != math.inf,
        multiples=tuple(dict.fromkeys((*one.multiples, *other.multiples))),
        broken=tuple(dict.fromkeys((*one.broken, *other.broken))),
        values=_common(one.values, other.values),
    )


def _low(shape: Num) -> tuple[Number, bool]:
    return (-math.inf if shape.low is None else shape.low, shape.low_open)


def _high(shape: Num) -> tuple[Number, bool]:
    """With a bound that is out before one that is in."""
    return (math.inf if shape.high is None else shape.high, not shape.high_open)


def _common(one: tuple[Any, ...] | None, other: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    if one is None or other is None:
        return other if one is None else one
    return tuple(value for value in one if value in other)


def _strings(one: Str, other: Str) -> Str:
    return Str(
        low=max(one.low, other.low),
        high=_least(one.high, other.high),
        patterns=tuple(dict.fromkeys((*one.patterns, *other.patterns))),
        without=tuple(dict.fromkeys((*one.without, *other.without))),
        formats=tuple(dict.fromkeys((*one.formats, *other.formats))),
        unlike=tuple(dict.fromkeys((*one.unlike, *other.unlike))),
        values=_common(one.values, other.values),
        excluded=tuple(dict.fromkeys((*one.excluded, *other.excluded))),
    )


def _arrays(one: Arr, other: Arr) -> Arr:
    count = max(len(one.prefix), len(other.prefix))
    return Arr(
        prefix=tuple(all_of([item_at(one, at), item_at(other, at)]) for at in range(count)),
        rest=all_of([one.rest, other.rest]),
        low=max(one.low, other.low),
        high=_least(one.high, other.high),
        unique=other.unique if one.unique is None else one.unique,
        some=tuple(dict.fromkeys((*one.some, *other.some))),
        evaluated=_most(one.evaluated, other.evaluated),
    )


def item_at(shape: Arr, index: int) -> Expression:
    """What the item there must match."""
    return shape.prefix[index] if index < len(shape.prefix) else shape.rest


def _most(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


def _least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _fits(value: Number, shape: Num) -> bool:
    whole = float(value).is_integer() if isinstance(value, float) else True
    return (
        (shape.whole is None or shape.whole == whole)
        and (shape.low is None or value > shape.low or (value == shape.low and not shape.low_open))
        and (shape.high is None or value < shape.high
             or (value == shape.high and not shape.high_open))
        and all(_divides(each, value) for each in shape.multiples)
        and not any(_divides(each, value) for each in shape.broken)
    )  # fmt: skip


def _divides(part: Number, value: Number) -> bool:
    if isinstance(part, int) and isinstance(value, int):
        return value % part == 0
    quotient = value / part
    return math.isfinite(quotient) and abs(quotient - round(quotient)) < 1e-9


def _plain(value: Number) -> Number:
    return int(value) if isinstance(value, float) and value.is_integer() else value
