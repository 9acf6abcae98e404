"""A written schema as rules of llguidance's Lark, where it has what its JSON schema has not.

That is `steps`, an array's items as an automaton, `members`, an object whose properties are told
apart here, `repeats`, an array that REPEATS_TOKEN tells from those of other alternatives, and the
numbers of numeric.py. The values of these keywords are lists. All without them stays JSON schema
inside the rules.

`members` begins with how many needs an object has, each for a property of some kind. Then come the
ways to meet some of them by one property: `needs` by number, `properties` with the values of listed
ones, `absent` with those that must not be there, and of others the pattern of patternProperties, an
expression for the names (None: all of those) and the value.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from runner.engine.schemas.expressions import Unsupported
from runner.engine.schemas.numeric import NUMBERS, expression
from runner.engine.schemas.texts import Texts

STEPS, MEMBERS, REPEATS = ("steps", "members", "repeats")
_KEYWORDS = (STEPS, MEMBERS, REPEATS, *NUMBERS)
REPEATS_TOKEN = "<|hearth-repeats|>"  # no model's
REPEATS_MARK = f"{REPEATS_TOKEN}? "  # behind the bracket
MAX_RULES = 5_000
MAX_S = 0.5  # of processor time
_DATA = ("enum", "required")

# A text as llguidance's JSON schema has it: each character in one way
_TEXT = r'/"([^"\\\x00-\x1f\x7f]|\\["\\bfnrt]|\\u00(0[0-7bef]|1[0-9a-f]|7f))*"/'


def needs_rules(schema: Any) -> bool:
    """Whether a written schema has such keywords."""
    return any(True for _ in _within(schema))


def _within(schema: Any) -> Iterator[dict[str, Any]]:
    """Those with such keywords, of it and all schemas in it. Names of properties are not told from
    keywords: each name that is a keyword has a schema for a value, where the keyword has a list."""
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if any(isinstance(value.get(keyword), list) for keyword in _KEYWORDS):
                yield value
            waiting += _parts(value)
        elif isinstance(value, list):
            waiting += value


def rules(schema: dict[str, Any], white_space: str, options: dict[str, Any], name: str) -> str:
    """The rules; `name` is the first one, and the others begin with it. white_space: a regular
    expression of what may stand between two values. options: of the JSON schemas inside. Raises
    Unsupported, and TooLarge of languages."""
    return _Rules(schema, white_space, options, name).text()


class _Rules:
    def __init__(
        self, schema: dict[str, Any], white_space: str, options: dict[str, Any], name: str
    ) -> None:
        self._schema = schema
        self._name = name
        self._definitions: dict[str, Any] = schema.get("$defs", {})
        self._options = options
        self._texts = Texts(time.thread_time() + MAX_S)
        self._special = self._special_definitions()
        self._text = f"{name.upper()}_TEXT"
        self._ws = f"{name}_ws"
        space = f"{name.upper()}_SPACE"
        self._lines = [f"{self._ws}: {space}?", f"{space}: /{white_space}/",
                       f"{self._text}: {_TEXT}"]  # fmt: skip
        self._names: dict[str | int, str] = {}
        self._nothing: dict[str, bool] = {}  # definitions that nothing matches
        self._kept: list[Any] = []  # whose ids are in _names

    def text(self) -> str:
        root = {key: value for key, value in self._schema.items() if key != "$defs"}
        return "\n".join([f"{self._name}: {self._rule(root)}", *self._lines])

    def _special_definitions(self) -> set[str]:
        found = {name for name, value in self._definitions.items() if needs_rules(value)}
        uses = {name: _references(value) for name, value in self._definitions.items()}
        while more := {name for name in uses if name not in found and uses[name] & found}:
            found |= more
        return found

    def _is_special(self, schema: Any) -> bool:
        return needs_rules(schema) or bool(_references(schema) & self._special)

    def _is_nothing(self, schema: Any) -> bool:
        """Whether it is known that nothing matches."""
        if not isinstance(schema, dict):
            return schema is False
        if "$ref" in schema:
            name = schema["$ref"].removeprefix("#/$defs/")
            if name not in self._nothing:
                self._nothing[name] = False  # while it is worked out, if it has itself in it
                self._nothing[name] = self._is_nothing(self._definitions[name])
            return self._nothing[name]
        if "anyOf" in schema:
            return all(map(self._is_nothing, schema["anyOf"]))
        known = schema.get("properties", {})
        return any(self._is_nothing(known.get(name)) for name in schema.get("required", ()))

    def _new(self, key: str | int) -> str:
        name = self._names[key] = f"{self._name}_{len(self._names)}"
        if len(self._names) > MAX_RULES:
            raise Unsupported("`contains` in so large a schema is not supported")
        return name

    def _rule(self, schema: Any) -> str:
        """The name of a rule for a schema."""
        if isinstance(schema, dict) and "$ref" in schema:
            target = schema["$ref"].removeprefix("#/$defs/")
            if target in self._special:
                known = self._names.get(target)
                if known is None:
                    known = self._new(target)
                    self._lines.append(f"{known}: {self._body(self._definitions[target])}")
                return known
        if id(schema) in self._names:
            return self._names[id(schema)]
        self._kept.append(schema)
        name = self._new(id(schema))
        self._lines.append(f"{name}: {self._body(schema)}")
        return name

    def _body(self, schema: Any) -> str:
        if not self._is_special(schema):
            return self._json({} if schema is True else schema)
        if "$ref" in schema:
            return self._rule(schema)
        if "anyOf" in schema:
            ways = [each for each in schema["anyOf"] if not self._is_nothing(each)]
            return " | ".join(map(self._rule, ways))
        if schema["type"] in ("number", "integer"):
            return f"/{expression(schema)}/"
        return self._array(schema) if schema["type"] == "array" else self._object(schema)

    def _json(self, schema: dict[str, Any]) -> str:
        needed, waiting = {}, list(_references(schema))
        while waiting:
            name = waiting.pop()
            if name not in needed:
                needed[name] = self._definitions[name]
                waiting += _references(needed[name])
        whole = {**schema, **({"$defs": needed} if needed else {}), **self._options}
        return "%json " + json.dumps(whole, ensure_ascii=False)

    def _array(self, schema: dict[str, Any]) -> str:
        steps = schema.get(STEPS)
        if steps is None:
            steps = _plain_steps(schema)
        name = self._new(f"[{len(self._names)}")
        for at, state in enumerate(steps):
            ways = [
                f"{self._rule(part)} {self._ws} {name}_{after}"
                for part, after in state["items"]
                if not self._is_nothing(part)
            ]
            ends = ['"]"'] if state["ends"] else []
            behind = [f'"," {self._ws} {way}' for way in ways]
            self._lines.append(f"{name}_{at}: {' | '.join([*ends, *behind])}")
            if at == 0:
                self._lines.append(f"{name}: {' | '.join([*ends, *ways])}")
        mark = REPEATS_MARK if REPEATS in schema else ""
        return f'"[" {mark}{self._ws} {name}'

    def _object(self, schema: dict[str, Any]) -> str:
        listed: dict[str, Any] = schema.get("properties", {})
        required = schema.get("required", [])
        known = {**listed, **{one: self._at(schema, one) for one in required if one not in listed}}
        if any(self._is_nothing(known[one]) for one in required):
            raise Unsupported("a required property that nothing can match is not supported here")
        name = self._new(f"{{{len(self._names)}")
        count, *ways = schema.get(MEMBERS, [0])
        low, high = schema.get("minProperties", 0), schema.get("maxProperties")
        members = [
            _Member(
                [(self._pair(_quoted(_quoted(key)), each), met)
                 for each, met in [(value, 0), *_met(ways, key)] if not self._is_nothing(each)],
                key in required,
                _skipped(ways, key),
            )
            for key, value in known.items()
        ]  # fmt: skip
        others = self._others(schema, list(known), ways)
        members = [one for one in members if one.pairs or one.skipped]
        start = self._members(name, members, others, (low, high, count))
        return f'"{{" {self._ws} {start}'

    def _pair(self, key: str, value: Any) -> str:
        return f'{key} {self._ws} ":" {self._ws} {self._rule(value)}'

    def _members(
        self,
        name: str,
        members: list[_Member],
        others: dict[int, list[str]],
        counts: tuple[int, int | None, int],
    ) -> str:
        """The rule for what stands between the brackets of an object. counts: its properties, at
        least and at most, and the needs. A rule says what may follow where the members from `at` on
        are left, so many properties have come, and the needs of a bit set are met."""
        low, high, needs = counts
        last = max(low, 1) if high is None else high  # more are not counted
        for met, pairs in others.items():
            self._lines.append(f"{name}_other_{met}: {' | '.join(pairs)}")

        def following(state: _State) -> list[tuple[str, _State]]:
            at, count, met = state
            if at == len(members):
                pairs = [(f"{name}_other_{more}", more) for more in others]
            else:
                pairs = members[at].pairs
            goes_on = high is None or count < high
            to, after = min(at + 1, len(members)), min(count + 1, last)
            found = [(pair, (to, after, met | more)) for pair, more in pairs if goes_on]
            if at < len(members) and not members[at].is_required:
                found.append(("", (to, count, met | members[at].skipped)))
            return found

        start = (0, 0, 0)
        alive: set[_State] = set()
        for state in sorted(_reachable(start, following), reverse=True):
            at, count, met = state
            ends = at == len(members) and count >= low and met == (1 << needs) - 1
            ways = ['"}"'] if ends else []
            comma = f'"," {self._ws} ' if count else ""
            for pair, after in following(state):
                if after in alive or (ways and after == state):
                    ways.append(
                        (f"{comma}{pair} {self._ws} " if pair else "") + _named(name, after)
                    )
            if ways:
                alive.add(state)
                self._lines.append(f"{_named(name, state)}: {' | '.join(ways)}")
        if start not in alive:
            raise Unsupported("an object that nothing can match is not supported here")
        return _named(name, start)

    def _at(self, schema: dict[str, Any], name: str) -> Any:
        for pattern, value in schema.get("patternProperties", {}).items():
            if self._texts.matches(pattern, name):
                return value
        return schema.get("additionalProperties", True)

    def _others(
        self, schema: dict[str, Any], names: list[str], ways: list[dict[str, Any]]
    ) -> dict[int, list[str]]:
        """What a property may be that is not known, by the needs that it meets."""
        patterns = schema.get("patternProperties", {})
        kinds = [(0, None, None, schema.get("additionalProperties", True))]
        kinds += [(0, pattern, None, value) for pattern, value in patterns.items()]
        kinds += [(_bits(way["needs"]), *other) for way in ways for other in way["others"]]
        found: dict[int, list[str]] = {}
        for met, pattern, written, value in kinds:
            if self._is_nothing(value):
                continue
            key = self._key(names, list(patterns), pattern, written)
            if key is not None:
                found.setdefault(met, []).append(self._pair(key, value))
        return found

    def _key(
        self, names: list[str], patterns: list[str], pattern: str | None, written: str | None
    ) -> str | None:
        """The rule of names with the pattern (None: with none of them) and the expression; None:
        there are none."""
        kind = json.dumps([names, patterns, pattern, written])
        if kind in self._names:
            return self._names[kind]
        asked = [one for one in (pattern, written) if one is not None]
        barred = patterns if pattern is None else []
        languages, term_of = self._texts.languages, self._texts.term
        whole = languages.both(
            [*map(term_of, asked), *(languages.other(term_of(one)) for one in barred)]
        )
        listed = [name for name in names if languages.matches(whole, name)]
        unlisted = languages.other(self._texts.one_of(tuple(listed)))
        if self._texts.is_none(languages.both([whole, unlisted])):
            return None
        key = self._new(kind)
        texts = [self._texts.json_expression(one) for one in (*asked, *barred)]
        if None in texts:
            names_left = self._texts.written(languages.both([whole, unlisted]))
            self._lines.append(f"{key}: {self._json({'type': 'string', 'pattern': names_left})}")
            return key
        parts = [f"/{text}/" for text in texts[: len(asked)]] or [_TEXT]
        parts += [f"~/{text}/" for text in texts[len(asked) :]]
        if listed:
            parts.append(f"~({' | '.join(_quoted(_quoted(name)) for name in listed)})")
        key = self._names[kind] = key.upper()
        self._lines.append(f"{key}: {' & '.join(parts)}")
        return key


_State = tuple[int, int, int]  # see _members


@dataclass(frozen=True, slots=True)
class _Member:
    """A listed property. pairs: what it may be, with the needs that it meets then. skipped: those
    that are met where it is not there."""

    pairs: list[tuple[str, int]]
    is_required: bool
    skipped: int


def _reachable(
    start: _State, following: Callable[[_State], list[tuple[str, _State]]]
) -> set[_State]:
    found, waiting = {start}, [start]
    while waiting:
        for _, after in following(waiting.pop()):
            if after not in found:
                found.add(after)
                waiting.append(after)
        if len(found) > MAX_RULES:
            raise Unsupported("an object of so many properties is not supported here")
    return found


def _met(ways: list[dict[str, Any]], name: str) -> Iterator[tuple[Any, int]]:
    for way in ways:
        if name in way["properties"]:
            yield way["properties"][name], _bits(way["needs"])


def _bits(numbers: list[int]) -> int:
    return sum(1 << number for number in numbers)


def _skipped(ways: list[dict[str, Any]], name: str) -> int:
    return functools.reduce(int.__or__, (_bits(w["needs"]) for w in ways if name in w["absent"]), 0)


def _named(name: str, state: _State) -> str:
    at, count, met = state
    return f"{name}_{at}_{count}" + (f"_{met}" if met else "")


def _parts(value: dict[str, Any]) -> Iterator[Any]:
    """What may be schemas; the values of keywords that have data are lists."""
    yield from (each for key, each in value.items()
                if not (key in _DATA and isinstance(each, list)))  # fmt: skip


def _references(schema: Any) -> set[str]:
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                found.add(value["$ref"].removeprefix("#/$defs/"))
            waiting += _parts(value)
        elif isinstance(value, list):
            waiting += value
    return found


def _plain_steps(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The automaton of an array without one."""
    prefix, rest = schema.get("prefixItems", []), schema.get("items", True)
    low, high = schema.get("minItems", 0), schema.get("maxItems")
    count = max(len(prefix), low) if high is None else high
    if count > MAX_RULES:
        raise Unsupported("`minItems` or `maxItems` is too large here")
    found = []
    for at in range(count + 1):
        item = prefix[at] if at < len(prefix) else rest
        goes_on = item is not False and (high is None or at < high)
        steps = [[item, min(at + 1, count)]] if goes_on else []
        found.append({"ends": at >= low, "items": steps})
    return found


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
