"""Which arrays of a text must have different items, by where in a written schema they stand."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from runner.engine.schemas.expressions import Unsupported
from runner.engine.schemas.languages import TooLarge
from runner.engine.schemas.texts import Texts

MAX_LISTED = 1_000  # texts of an item that are told apart before they are whole

Place = tuple[int, ...]  # the schemas that may apply, by number, without anyOf and $ref
_ANYTHING: dict[str, Any] = {}


class Places:
    """Of one schema as written.py writes it. Where it depends on the rest of the text whether items
    must differ, they must."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._definitions = schema.get("$defs", {})
        self._schemas: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}
        self._texts = Texts(math.inf)
        self._known: dict[tuple[Place, str | int | None], Place] = {}
        self._listed: dict[Place, frozenset[str] | None] = {}
        self.start = self._place([schema])

    def _place(self, schemas: Iterable[Any]) -> Place:
        found: dict[int, None] = {}
        waiting, seen = list(schemas), set()
        while waiting:
            schema = waiting.pop()
            if schema is False:
                continue
            if schema is True:
                schema = _ANYTHING
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
                if name in schema.get("properties", ()):
                    found.append(schema["properties"][name])
                    continue
                patterns = schema.get("patternProperties", {})
                fitting = [value for one, value in patterns.items() if self._matches(one, name)]
                found += fitting or [schema.get("additionalProperties", True)]
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
            found = []
            for schema in self._of(place, "array"):
                prefix = schema.get("prefixItems", ())
                found.append(prefix[index] if index < len(prefix) else schema.get("items", True))
            self._known[place, index] = self._place(found)
        return self._known[place, index]

    def _longest_prefix(self, place: Place) -> int:
        arrays = self._of(place, "array")
        return max((len(schema.get("prefixItems", ())) for schema in arrays), default=0)

    def unique(self, place: Place) -> bool:
        """Whether the items of an array there must differ."""
        return any(schema.get("uniqueItems", False) for schema in self._of(place, "array"))

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


def without_unique(schema: Any) -> Any:
    """The same without uniqueItems."""
    if isinstance(schema, dict):
        return {
            key: value if key in ("enum", "required") else without_unique(value)
            for key, value in schema.items()
            if not (key == "uniqueItems" and value is True)
        }
    return [without_unique(each) for each in schema] if isinstance(schema, list) else schema
