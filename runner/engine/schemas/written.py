"""From shapes back to a JSON schema, with keywords that llguidance has only.

Alternatives are `anyOf`, and what other schemas refer to is in `$defs`. `uniqueItems` stays, where
it is needed: unique.py takes it from there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from runner.engine.schemas.algebra import Algebra, TooMuch
from runner.engine.schemas.automata import automaton
from runner.engine.schemas.expressions import (
    And,
    Expression,
    Node,
    Not,
    Or,
    Unsupported,
    all_of,
    negated,
    place_of,
)
from runner.engine.schemas.languages import Term, written_texts
from runner.engine.schemas.numeric import number_schema
from runner.engine.schemas.rules import MEMBERS, STEPS
from runner.engine.schemas.shapes import (
    ANY,
    Arr,
    Boolean,
    Null,
    Num,
    Obj,
    Other,
    Shape,
    Some,
    Str,
)

Schema = dict[str, Any] | bool

MAX_DEFINITIONS = 4_000
MAX_OTHERS = 10  # of an object
MAX_EXPANDED = 128  # shapes that one becomes


class Writer:
    """Writes a document. Raises Unsupported, TooMuch."""

    def __init__(self, algebra: Algebra) -> None:
        self._algebra = algebra
        self._names: dict[Node | Not | And | Or, str] = {}
        self._waiting: list[Node | Not | And | Or] = []
        self._ways_of: dict[Obj, list[dict[str, Any]]] = {}

    def document(self) -> Schema:
        """The whole schema; False where nothing matches."""
        shapes = self._algebra.root_shapes()
        root = self._written(shapes, self._algebra.document.root)
        definitions: dict[str, Any] = {}
        while self._waiting:
            part = self._waiting.pop(0)
            definitions[self._names[part]] = self._written(self._algebra.shapes(part), part)
        if isinstance(root, bool):
            return root and {}
        return {**root, **({"$defs": definitions} if definitions else {})}

    def _schema(self, part: Expression) -> Schema:
        if isinstance(part, bool):
            return part
        if part not in self._names:
            shapes = self._algebra.shapes(part)
            if not any(isinstance(shape, Arr | Obj) for shape in shapes):
                return self._written(shapes, part)
            if shapes == ANY:
                return True
            self._names[part] = f"d{len(self._names)}"
            self._waiting.append(part)
            if len(self._names) > MAX_DEFINITIONS:
                raise TooMuch
        return {"$ref": f"#/$defs/{self._names[part]}"}

    def _written(self, shapes: Sequence[Shape], part: Node | Not | And | Or) -> Schema:
        self._algebra.check_time()
        try:
            return self._choice(self._settled(shapes))
        except Unsupported as error:
            error.path = error.path or place_of(part)
            raise

    def _settled(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The same values in shapes that can be written."""
        found: dict[Shape, None] = {}
        for shape in shapes:
            if isinstance(shape, Arr):
                found.update(dict.fromkeys(self._positions(shape)))
            elif isinstance(shape, Obj):
                named = _counted(self._named(shape))
                if not named.others or _is_possible(named, self._ways(named)):
                    found[named] = None
            else:
                found[shape] = None
            if len(found) > 8 * MAX_EXPANDED:
                raise TooMuch
        return list(found)

    def _positions(self, shape: Arr) -> Iterator[Shape]:
        """Of a short array, where the items that must be there stand; longer ones keep `some`."""
        empty = self._algebra.is_empty
        for one in shape.some:
            items = [*shape.prefix[one.start :], shape.rest]
            rest = tuple(other for other in shape.some if other is not one)
            if all(empty(all_of([item, negated(one.item)])) for item in items):
                high = None if one.high is None else one.start + one.high
                low = max(shape.low, one.start + one.low if one.low else 0)
                high = min((each for each in (high, shape.high) if each is not None), default=None)
                if high is None or low <= high:
                    yield from self._positions(replace(shape, low=low, high=high, some=rest))
                return
            if all(empty(all_of([item, one.item])) for item in items):
                if not one.low:
                    yield from self._positions(replace(shape, some=rest))
                return
        places = [self._places(shape, one) for one in shape.some]
        if not all(places) or math.prod(map(len, filter(None, places))) > MAX_EXPANDED:
            yield shape
            return
        for chosen in itertools.product(*filter(None, places)):
            items = list(shape.prefix)
            items += [shape.rest] * (max(chosen, default=-1) + 1 - len(items))
            for one, place in zip(shape.some, chosen, strict=True):
                items[place] = all_of([items[place], one.item])
            low = max(shape.low, max(chosen, default=-1) + 1)
            bare = replace(shape, prefix=tuple(items), low=low, some=())
            met = self._algebra.meeting.array(bare)
            if met is not None:
                yield met

    def _places(self, shape: Arr, one: Some) -> range | None:
        """Where the one item stands; None: more than one is asked for, or it may be anywhere."""
        if one.low != 1 or one.high is not None:
            return None
        if shape.high is not None:
            return range(one.start, shape.high)
        ends = self._algebra.is_empty(all_of([shape.rest, one.item]))
        return range(one.start, len(shape.prefix)) if ends else None

    def _named(self, shape: Obj) -> Obj:
        """With the rules for names worked into the rest, without `others` that are a count."""
        if shape.names:
            shape = self._names_applied(shape)
        for other in shape.others:
            if self._any_will_do(shape, other):
                rest = tuple(one for one in shape.others if one is not other)
                return self._named(replace(shape, low=max(shape.low, 1), others=rest))
        if not shape.others:
            return shape
        listed = {name for name, _ in shape.known}
        asked = [name for other in shape.others
                 for name in (*other.absent, *(each for each, _ in other.values))]  # fmt: skip
        more = [name for name in dict.fromkeys((*shape.required, *asked)) if name not in listed]
        at = self._algebra.meeting.at
        return replace(shape, known=(*shape.known, *((name, at(shape, name)) for name in more)))

    def _any_will_do(self, shape: Obj, other: Other) -> bool:
        """Whether every property that there may be is as the other one must be."""
        if shape.patterns or any(value is not False for _, value in shape.known):
            return False
        if other.is_listed:
            return False
        any_name = other.only is None and not other.patterns and not other.unnamed
        any_name = any_name and other.names <= {name for name, _ in shape.known}
        return any_name and self._algebra.is_empty(all_of([shape.extra, negated(other.value)]))

    def _names_applied(self, shape: Obj) -> Obj:
        fits = self._algebra.meeting.name_fits
        known = tuple((name, value if fits(name, shape) else False) for name, value in shape.known)
        rest = replace(shape, known=known, names=())
        if shape.extra is False and not shape.patterns:
            return rest
        listed = self._listed_names(shape)
        if listed is not None:
            return replace(rest, patterns=tuple(self._by_value(shape, listed)), extra=False)
        texts = self._algebra.texts
        allowed = self._names_term(shape.names)
        if shape.patterns:
            kept = []
            for pattern, value in shape.patterns:
                both = texts.languages.both([texts.term(pattern), allowed])
                if not texts.languages.is_empty(both):
                    kept.append((texts.written(both), value))
            if shape.extra is not False:
                none = [texts.languages.other(texts.term(one)) for one, _ in shape.patterns]
                others = texts.languages.both([allowed, *none])
                if not texts.languages.is_empty(others):
                    kept.append((texts.written(others), shape.extra))
            return replace(rest, patterns=tuple(kept), extra=False)
        if allowed is texts.languages.all:
            return rest
        if texts.languages.is_empty(allowed):
            return replace(rest, extra=False)
        pattern = self._single_pattern(shape) or texts.written(allowed)
        return replace(rest, patterns=((pattern, shape.extra),), extra=False)

    def _listed_names(self, shape: Obj) -> list[str] | None:
        """The names that a property may have, known ones aside; None: they are not listed."""
        fits, known = self._algebra.meeting.name_fits, dict(shape.known)
        for part in shape.names:
            texts = [each for each in self._algebra.shapes(part) if isinstance(each, Str)]
            if texts and all(each.values is not None for each in texts):
                names = dict.fromkeys(name for each in texts for name in each.values or ())
                return [name for name in names if name not in known and fits(name, shape)]
        return None

    def _by_value(self, shape: Obj, names: list[str]) -> Iterator[tuple[str, Expression]]:
        """A pattern for the names of all properties with the same value."""
        found: dict[Expression, list[str]] = {}
        for name in names:
            found.setdefault(self._algebra.meeting.at(shape, name), []).append(name)
        for value, same in found.items():
            if value is not False:
                yield written_texts(same), value

    def _names_term(self, parts: Iterable[Expression]) -> Term:
        """The names that match all of these."""
        texts = self._algebra.texts
        return texts.languages.both(
            texts.languages.union(
                texts.whole(each) for each in self._algebra.shapes(part) if isinstance(each, Str)
            )
            for part in parts
        )

    def _single_pattern(self, shape: Obj) -> str | None:
        """The pattern of names that have one and nothing else, as it was written."""
        shapes = [each for part in shape.names for each in self._algebra.shapes(part)
                  if isinstance(each, Str)]  # fmt: skip
        if len(shapes) == 1 and len(shapes[0].patterns) == 1:
            bare = replace(shapes[0], patterns=())
            plain = self._algebra.texts.plain(shapes[0].patterns[0])
            if bare == Str() and len(plain) == 1:
                return plain[0]
        return None

    def _choice(self, shapes: Sequence[Shape]) -> Schema:
        if len(shapes) == len(ANY) and set(shapes) == set(ANY):
            return True
        written = [self._shape(shape) for shape in shapes]
        if len(written) < 2:
            return written[0] if written else False
        return {"anyOf": written}

    def _shape(self, shape: Shape) -> dict[str, Any]:
        if isinstance(shape, Null):
            return {"type": "null"}
        if isinstance(shape, Boolean):
            both = len(shape.values) == 2
            return {"type": "boolean"} if both else {"enum": list(shape.values)}
        if isinstance(shape, Num):
            return number_schema(shape)
        if isinstance(shape, Str):
            return self._text(shape)
        return self._array(shape) if isinstance(shape, Arr) else self._object(shape)

    def _text(self, shape: Str) -> dict[str, Any]:
        if shape.unlike:
            raise Unsupported("`format` under `not`, `if` or `oneOf` is not supported")
        texts = self._algebra.texts
        found: dict[str, Any] = {"type": "string"}
        if shape.values is not None:
            found["enum"] = list(shape.values)
        if shape.low:
            found["minLength"] = shape.low
        if shape.high is not None:
            found["maxLength"] = shape.high
        patterns = [one for pattern in shape.patterns for one in texts.plain(pattern)]
        if shape.excluded:
            patterns.append(texts.all_but(shape.excluded))
        patterns += self._without(shape.without)
        parts = [{"pattern": one} for one in dict.fromkeys(patterns)]
        parts += [{"format": one} for one in shape.formats]
        if parts:
            found |= parts[0]
        if len(parts) > 1:
            found["allOf"] = parts[1:]
        return found

    def _without(self, patterns: Sequence[str]) -> list[str]:
        """Expressions for texts in which none is found: one, as llguidance takes few at a time, or
        one for each where that is too large."""
        texts = self._algebra.texts
        terms = [texts.term(one) for one in patterns]
        if len(terms) > 1:
            try:
                return [texts.written(texts.languages.other(texts.languages.union(terms)))]
            except Unsupported:
                pass
        return [texts.written(texts.languages.other(one)) for one in terms]

    def _array(self, shape: Arr) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "array"}
        if shape.prefix:
            found["prefixItems"] = [self._schema(item) for item in shape.prefix]
        if shape.rest is not True:
            found["items"] = self._schema(shape.rest)
        if shape.low:
            found["minItems"] = shape.low
        if shape.high is not None:
            found["maxItems"] = shape.high
        if shape.some:
            found[STEPS] = self._steps(shape)
        if shape.unique is False:
            raise Unsupported("`uniqueItems` under `not`, `if` or `oneOf` is not supported")
        if shape.unique and (shape.high is None or shape.high > 1):
            found["uniqueItems"] = True
        return found

    def _steps(self, shape: Arr) -> list[dict[str, Any]]:
        states = automaton(shape, self._algebra.is_empty)
        if not states:
            raise Unsupported("`contains` that nothing can match is not supported here")
        return [
            {"ends": state.ends, "items": [[self._schema(part), to] for part, to in state.steps]}
            for state in states
        ]

    def _object(self, shape: Obj) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "object"}
        if shape.known:
            found["properties"] = {name: self._schema(value) for name, value in shape.known}
        if shape.patterns:
            found["patternProperties"] = {
                pattern: self._schema(value) for pattern, value in self._apart(shape)
            }
        if shape.extra is not True:
            found["additionalProperties"] = self._schema(shape.extra)
        if shape.required:
            found["required"] = list(shape.required)
        if shape.low:
            found["minProperties"] = shape.low
        if shape.high is not None:
            found["maxProperties"] = shape.high
        if shape.others or self._is_ruled(shape):
            found[MEMBERS] = [len(shape.others), *self._ways(shape)]
        return found

    def _ways(self, shape: Obj) -> list[dict[str, Any]]:
        """What is a property that must be there, for each choice of those that must be: see
        rules.py."""
        if shape not in self._ways_of:
            self._ways_of[shape] = list(self._new_ways(shape))
        return self._ways_of[shape]

    def _new_ways(self, shape: Obj) -> Iterator[dict[str, Any]]:
        if len(shape.others) > MAX_OTHERS:
            one = shape.others[0]
            reason = f"`{one.keyword}` so often under `not`, `if` or `oneOf` is not supported"
            raise Unsupported(reason, one.path)
        chosen = [self._algebra.meeting.chosen(shape, other) for other in shape.others]
        for size in range(1, len(shape.others) + 1):
            for needs in itertools.combinations(range(len(shape.others)), size):
                others = [shape.others[number] for number in needs]
                names = set(chosen[needs[0]]).intersection(*(chosen[one] for one in needs))
                absent = set(others[0].absent).intersection(*(other.absent for other in others))
                is_free = not any(other.is_listed for other in others)
                way = {
                    "needs": list(needs),
                    "properties": dict(self._known_others(shape, others, names)),
                    "others": list(self._unknown_others(shape, others)) if is_free else [],
                    "absent": sorted(absent - {*shape.required}),
                }
                if way["properties"] or way["others"] or way["absent"]:
                    yield way

    def _known_others(
        self, shape: Obj, others: list[Other], names: set[str]
    ) -> Iterator[tuple[str, Schema]]:
        for name, value in shape.known:
            if name in names:
                part = all_of([value, *(_value_of(other, name) for other in others)])
                if not self._algebra.is_empty(part):
                    yield name, self._schema(part)

    def _unknown_others(self, shape: Obj, others: list[Other]) -> Iterator[list[Any]]:
        texts = self._algebra.texts
        languages = texts.languages
        names = self._other_names(shape, others)
        written = None if names is languages.all else texts.written(names)
        unknown = languages.other(texts.one_of(tuple(name for name, _ in shape.known)))
        terms = [(pattern, texts.term(pattern), value) for pattern, value in self._apart(shape)]
        rest = languages.both(languages.other(term) for _, term, _ in terms)
        for pattern, term, value in [*terms, (None, rest, shape.extra)]:
            part = all_of([value, *(other.value for other in others)])
            is_named = not languages.is_empty(languages.both([term, names, unknown]))
            if is_named and not self._algebra.is_empty(part):
                yield [pattern, written, self._schema(part)]

    def _other_names(self, shape: Obj, others: list[Other]) -> Term:
        """Their names, known ones aside."""
        texts = self._algebra.texts
        languages = texts.languages
        listed = {name for name, _ in shape.known}
        parts = []
        for other in others:
            parts.append(languages.other(texts.one_of(tuple(sorted(other.names - listed)))))
            parts += [languages.other(texts.term(one)) for one in other.patterns]
            parts += [] if other.only is None else [texts.term(other.only)]
            if other.unnamed:
                parts.append(languages.other(self._names_term(other.unnamed)))
        return languages.both(parts)

    def _is_ruled(self, shape: Obj) -> bool:
        """Whether llguidance does not take it: it counts required properties only, applies patterns
        to listed ones too, and seldom knows that patterns do not overlap."""
        is_counted = shape.low or shape.high is not None
        if is_counted and any(name not in shape.required for name, _ in shape.known):
            return True
        patterns_of = self._algebra.meeting.patterns_of
        return len(shape.patterns) > 1 or any(patterns_of(shape, name) for name, _ in shape.known)

    def _apart(self, shape: Obj) -> list[tuple[str, Expression]]:
        """The patterns, none of which overlap."""
        texts, languages = self._algebra.texts, self._algebra.texts.languages
        patterns = [(pattern, value) for pattern, value in shape.patterns]
        pairs = itertools.combinations([pattern for pattern, _ in patterns], 2)
        if all(texts.apart(pair) for pair in pairs):
            return [(one, value) for pattern, value in patterns for one in [self._one(pattern)]]
        found: list[tuple[Term, Expression]] = []
        for pattern, value in patterns:
            left, split = texts.term(pattern), []
            for term, known in found:
                both = languages.both([term, left])
                if languages.is_empty(both):
                    split.append((term, known))
                    continue
                alone = languages.both([term, languages.other(left)])
                split += [(both, all_of([known, value])), (alone, known)]
                left = languages.both([left, languages.other(term)])
            found = [*split, (left, value)]
        return [(texts.written(term), value) for term, value in found
                if not languages.is_empty(term)]  # fmt: skip

    def _one(self, pattern: str) -> str:
        plain = self._algebra.texts.plain(pattern)
        if len(plain) == 1:
            return plain[0]
        return self._algebra.texts.written(self._algebra.texts.term(pattern))


def _counted(shape: Obj) -> Obj:
    """Without counts that say nothing."""
    possible = {*shape.required, *(name for name, value in shape.known if value is not False)}
    closed = shape.extra is False and not shape.patterns
    high = None if closed and (shape.high or 0) >= len(possible) else shape.high
    return replace(shape, low=shape.low if shape.low > len(shape.required) else 0, high=high)


def _value_of(other: Other, name: str) -> Expression:
    return dict(other.values)[name] if other.is_listed else other.value


def _is_possible(shape: Obj, ways: list[dict[str, Any]]) -> bool:
    """Whether an object can have all properties that must be there."""

    def masks(keyword: str, name: str) -> set[int]:
        return {_bits(way) for way in ways if name in way[keyword]}

    one = 0 if shape.high is None else 1  # counted only where that matters
    found = {(0, 0)}  # how many properties, and which needs are met
    for name, value in shape.known:
        met = masks("properties", name) | (set() if value is False else {0})
        skips = set() if name in shape.required else masks("absent", name) | {0}
        skipped = {(count, had | more) for count, had in found for more in skips}
        found = skipped | {(count + one, had | more) for count, had in found for more in met}
    unknown = {_bits(way) for way in ways if way["others"]}
    for _ in shape.others:
        found |= {(count + one, had | more) for count, had in found for more in unknown}
    return any(
        had == (1 << len(shape.others)) - 1 and (shape.high is None or count <= shape.high)
        for count, had in found
    )


def _bits(way: dict[str, Any]) -> int:
    return sum(1 << number for number in way["needs"])
