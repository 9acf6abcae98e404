"""Which arrays of a text must have different items, by where in a written schema they stand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from runner.engine.schemas.expressions import Unsupported
from runner.engine.schemas.languages import TooLarge
from runner.engine.schemas.rules import MEMBERS, REPEATS, STEPS
from runner.engine.schemas.texts import Texts

MAX_LISTED = 1_000  # texts of an item that are told apart before they are whole
MAX_PLACES = 10_000

Place = tuple[int, ...]  # the schemas that may apply, by number, without anyOf and $ref
_ANY_NAME = "any"  # of a definition; written.py's are d0, d1, ...


class Places:
    """Of one schema as written.py writes it. A place may have arrays whose items must differ beside
    others: which of them an array is, only a grammar of `plain` knows."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema: dict[str, Any] = _explicit(schema)
        self._definitions = self._schema.get("$defs", {})
        self._schemas: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}
        self._texts = Texts(math.inf)
        self._known: dict[tuple[Place, str | int | None], Place] = {}
        self._listed: dict[Place, frozenset[str] | None] = {}
        self.start = self._place([self._schema])

    def plain(self) -> dict[str, Any]:
        """The schema without uniqueItems. Arrays of places with others whose items must differ have
        REPEATS. Raises Unsupported."""
        mixed = self._mixed()

        def changed(part: Any) -> Any:
            if not isinstance(part, dict):
                return part
            if not part and id(part) in mixed:
                return {"$ref": f"#/$defs/{_ANY_NAME}"}
            found = _with_parts(part, changed)
            found.pop("uniqueItems", None)
            return {**found, REPEATS: []} if id(part) in mixed else found

        found: dict[str, Any] = changed(self._schema)
        found["$defs"] = {**found.get("$defs", {}), _ANY_NAME: _anything()}
        return found

    def _mixed(self) -> set[int]:
        """The ids of the schemas without uniqueItems in places where others have it."""
        found: set[int] = set()
        waiting, seen = [self.start], {self.start}
        while waiting:
            place = waiting.pop()
            if self.unique(place) and self.mixed(place):
                found |= {id(schema) for schema in self._of(place, "array")
                          if not schema.get("uniqueItems")}  # fmt: skip
            for inner in self._inner(place):
                if inner not in seen:
                    seen.add(inner)
                    waiting.append(inner)
            if len(seen) > MAX_PLACES:
                raise Unsupported("`uniqueItems` beside so many alternatives is not supported")
        return found

    def _inner(self, place: Place) -> Iterator[Place]:
        """Where properties and items are. Properties that no schema lists are taken together."""
        others: list[Any] = []
        for schema in self._of(place, "object"):
            for name in schema.get("properties", ()):
                yield self.property(place, name)
            others += schema.get("patternProperties", {}).values()
            others += [each for way in schema.get(MEMBERS, ())[1:] for *_, each in way["others"]]
            others.append(schema.get("additionalProperties", schema))
        yield self._place(others)
        for index in range(self._longest_prefix(place) + 1):
            yield self.item(place, index)

    def _place(self, schemas: Iterable[Any]) -> Place:
        found: dict[int, None] = {}
        waiting, seen = list(schemas), set()
        while waiting:
            schema = waiting.pop()
            if schema is False:
                continue
            if "$ref" in schema:
                name = schema["$ref"].removeprefix("#/$defs/")
                if name not in seen:
                    seen.add(name)
                    waiting.append(self._definitions[name])
            elif "anyOf" in schema:
                waiting += schema["anyOf"]
            else:
                if id(schema) not in self._numbers:
                    self._numbers[id(schema)] = len(self._schemas)
                    self._schemas.append(schema)
                found[self._numbers[id(schema)]] = None
        return tuple(sorted(found))

    def _of(self, place: Place, kind: str) -> Iterator[dict[str, Any]]:
        for number in place:
            schema = self._schemas[number]
            if schema.get("type") == kind or not schema:
                yield schema

    def property(self, place: Place, name: str) -> Place:
        """Where the value of an object's property is."""
        if (place, name) not in self._known:
            found: list[Any] = []
            for schema in self._of(place, "object"):
                ways = schema.get(MEMBERS, ())[1:]
                if name in schema.get("properties", ()):
                    found.append(schema["properties"][name])
                    found += [way["properties"][name] for way in ways if name in way["properties"]]
                    continue
                found += [value for way in ways for *_, value in way["others"]]
                patterns = schema.get("patternProperties", {})
                fitting = [value for one, value in patterns.items() if self._matches(one, name)]
                found += fitting or [schema.get("additionalProperties", schema)]
            self._known[place, name] = self._place(found)
        return self._known[place, name]

    def _matches(self, pattern: str, name: str) -> bool:
        try:
            return self._texts.matches(pattern, name)
        except (Unsupported, TooLarge):
            return True

    def item(self, place: Place, index: int) -> Place:
        """Where an array's item is."""
        index = min(index, self._longest_prefix(place))
        if (place, index) not in self._known:
            found: list[Any] = []
            for schema in self._of(place, "array"):
                if STEPS in schema:
                    found += [part for state in schema[STEPS] for part, _ in state["items"]]
                    continue
                prefix = schema.get("prefixItems", ())
                found.append(prefix[index] if index < len(prefix) else schema.get("items", schema))
            self._known[place, index] = self._place(found)
        return self._known[place, index]

    def _longest_prefix(self, place: Place) -> int:
        arrays = self._of(place, "array")
        return max((len(schema.get("prefixItems", ())) for schema in arrays), default=0)

    def unique(self, place: Place) -> bool:
        """Whether the items of an array there must differ, or those of some arrays."""
        return any(schema.get("uniqueItems", False) for schema in self._of(place, "array"))

    def mixed(self, place: Place) -> bool:
        """Whether an array there may have equal items."""
        return not all(schema.get("uniqueItems", False) for schema in self._of(place, "array"))

    def listed(self, place: Place) -> frozenset[str] | None:
        """All texts that a value there may be, where these are a few; else None."""
        if place not in self._listed:
            self._listed[place] = self._all_texts(place)
        return self._listed[place]

    def _all_texts(self, place: Place) -> frozenset[str] | None:
        found: set[str] = set()
        for number in place:
            schema = self._schemas[number]
            if schema.get("type") in ("null", "boolean"):
                found |= {"null"} if schema["type"] == "null" else {"true", "false"}
            elif "enum" in schema:
                found |= {canonical(value) for value in schema["enum"]}
            else:
                return None
        return frozenset(found) if len(found) <= MAX_LISTED else None


def canonical(value: Any) -> str:
    """The text by which values are compared."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def has_unique(schema: dict[str, Any]) -> bool:
    """Whether a written schema has uniqueItems."""
    found = False

    def look(part: Any) -> Any:
        nonlocal found
        if isinstance(part, dict):
            found = found or part.get("uniqueItems") is True
            _with_parts(part, look)
        return part

    look(schema)
    return found


def _with_parts(schema: dict[str, Any], changed: Callable[[Any], Any]) -> dict[str, Any]:
    """A copy with all schemas in it changed."""
    found = dict(schema)
    for key in found.keys() & {"properties", "patternProperties", "$defs"}:
        found[key] = {name: changed(each) for name, each in found[key].items()}
    for key in found.keys() & {"anyOf", "prefixItems"}:
        found[key] = [changed(each) for each in found[key]]
    for key in found.keys() & {"items", "additionalProperties"}:
        found[key] = changed(found[key])
    if STEPS in found:
        found[STEPS] = [
            {**state, "items": [[changed(part), to] for part, to in state["items"]]}
            for state in found[STEPS]
        ]
    if MEMBERS in found:
        count, *ways = found[MEMBERS]
        found[MEMBERS] = [count, *(_changed_way(way, changed) for way in ways)]
    return found


def _changed_way(way: dict[str, Any], changed: Callable[[Any], Any]) -> dict[str, Any]:
    known = {name: changed(each) for name, each in way["properties"].items()}
    others = [[*names, changed(each)] for *names, each in way["others"]]
    return {**way, "properties": known, "others": others}


def _explicit(schema: Any) -> Any:
    """The same with each schema that allows anything as an object of its own."""
    if schema is False:
        return False
    found = _with_parts({} if schema is True else schema, _explicit)
    if found.get("type") == "array":
        found.setdefault("items", {})
    if found.get("type") == "object":
        found.setdefault("additionalProperties", {})
    return found


def _anything() -> dict[str, Any]:
    """Any value, with arrays that have REPEATS."""
    more = {"$ref": f"#/$defs/{_ANY_NAME}"}
    kinds: list[dict[str, Any]] = [
        {"type": kind} for kind in ("null", "boolean", "number", "string")
    ]
    kinds.append({"type": "array", "items": more, REPEATS: []})
    kinds.append({"type": "object", "additionalProperties": more})
    return {"anyOf": kinds}
