"""Values for a schema: made along it, kept where jsonschema agrees, and broken for the others.

Independent of hearth's own reading of schemas.
"""

from __future__ import annotations

import copy
import importlib
import json
import random
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
from jsonschema.validators import validator_for

TRIES = 60
MAX_VALID, MAX_INVALID = 6, 12
MAX_CHARS = 1_500
_CANNOT = (
    jsonschema.exceptions._WrappedReferencingError,
    jsonschema.SchemaError,
    re.error,
    RecursionError,
    AttributeError,  # of schemas that are not what their dialect says
    TypeError,
)
_WORDS = ("", "a", "ab", "abc", "A", "name", "1", "1.0", "1.2.3", "a/b", "a-b", "x_y", "/a", "./a",
          "a.b", "a:b", "@a/b", "#fff", "true", "${a}", "{{a}}", "a b", "10m", "1h", "5s", "*.py",
          "http://example.com/a", "a@example.com", "2020-01-02", "2020-01-02T03:04:05Z",
          "127.0.0.1", "::1", "example.com", "ed7ba470-8e54-465e-825c-99712043e01c")  # fmt: skip
_FORMATS: dict[str, str] = {
    "date-time": r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)",
    "date": r"\d{4}-\d\d-\d\d",
    "time": r"\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)",
    "duration": r"P(?=.)(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+S)?)?)",
    "email": r"[^@\s\"]+@[A-Za-z0-9.-]+",
    "hostname": r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*",  # noqa: E501
    "ipv4": r"((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)",
    "ipv6": r"(::1|::|([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4})",
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "uri": r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9\-._~:/?#@!$&'()*+,;=%\[\]]*",
    "uri-reference": r"[A-Za-z0-9\-._~:/?#@!$&'()*+,;=%\[\]]*",
}


def format_checker() -> jsonschema.FormatChecker:
    """The formats that hearth enforces; others are remarks."""
    checker = jsonschema.FormatChecker(formats=())

    def add(name: str, pattern: str) -> None:
        def fits(value: object) -> bool:
            return not isinstance(value, str) or re.fullmatch(pattern, value) is not None

        checker.checks(name)(fits)

    for name, pattern in _FORMATS.items():
        add(name, pattern)
    return checker


def judge_of(schema: Any) -> Callable[[Any], bool]:
    """Whether a value matches, as jsonschema says. Raises what jsonschema raises."""
    kind = validator_for(schema, default=jsonschema.Draft202012Validator)
    kind.check_schema(schema)
    validator = kind(schema, format_checker=format_checker())
    return lambda value: bool(validator.is_valid(value))


def instances(
    schema: Any, examples: tuple[Any, ...], seed: str
) -> tuple[list[Any], list[Any]] | None:
    """Values that match and values that do not; None where jsonschema cannot tell, as for a
    reference that leads outside."""
    try:
        judge = judge_of(schema)
    except _CANNOT:
        return None
    maker = _Maker(schema, random.Random(seed))
    valid: dict[str, Any] = {}
    invalid: dict[str, Any] = {}
    try:
        judge({})
        tried = [*examples, *maker.said()]
        for number in range(TRIES):
            value = tried[number] if number < len(tried) else maker.value(schema, number % 4)
            text = json.dumps(value)
            if len(text) <= MAX_CHARS:
                (valid if judge(value) else invalid).setdefault(text, value)
        for value in list(valid.values())[:MAX_VALID]:
            for broken in maker.broken(value):
                text = json.dumps(broken)
                known = text in valid or text in invalid
                if not known and len(invalid) < 4 * MAX_INVALID and not judge(broken):
                    invalid[text] = broken
    except _CANNOT:
        return None
    return (
        sorted(valid.values(), key=lambda one: -len(json.dumps(one)))[:MAX_VALID],
        list(invalid.values())[-MAX_INVALID:],
    )


class _Maker:
    def __init__(self, root: Any, rng: random.Random) -> None:
        self._root = root
        self._rng = rng

    def said(self) -> Iterator[Any]:
        """What the schema itself has as examples."""
        found = self._root.get("examples") if isinstance(self._root, dict) else None
        yield from found if isinstance(found, list) else ()
        if isinstance(self._root, dict) and "default" in self._root:
            yield self._root["default"]

    def value(self, schema: Any, depth: int) -> Any:
        """Something that may match. depth: of what need not be there."""
        if not isinstance(schema, dict):
            return self._rng.choice([None, 1, "a", {}, [], True])
        schema = self._merged(schema, depth)
        for key in ("const",):
            if key in schema:
                return schema[key]
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return self._rng.choice(schema["enum"])
        stated = [schema[key] for key in ("default",) if key in schema]
        stated += schema["examples"] if isinstance(schema.get("examples"), list) else []
        if stated and self._rng.random() < 0.5:
            return copy.deepcopy(self._rng.choice(stated))
        return self._typed(schema, depth)

    def _merged(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        """The schema with what it refers to, and one of its alternatives."""
        found = dict(schema)
        for _ in range(12):
            more: list[Any] = []
            if isinstance(reference := found.pop("$ref", None), str):
                more.append(self._resolved(reference))
            for key in ("anyOf", "oneOf"):
                options = found.pop(key, None)
                if isinstance(options, list) and options:
                    more.append(self._rng.choice(options))
            parts = found.pop("allOf", None)
            more += parts if isinstance(parts, list) else []
            if "if" in found:
                found.pop("if")
                then, other = found.pop("then", {}), found.pop("else", {})
                more.append(self._rng.choice([then, other]))
            more = [one for one in more if isinstance(one, dict)]
            if not more:
                break
            for one in more:
                found = _joined(found, one)
        return found

    def _resolved(self, reference: str) -> Any:
        value = self._root
        if not reference.startswith("#"):
            return {}
        for step in reference[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~").replace("%24", "$")
            if isinstance(value, dict):
                value = value.get(step, {})
        return value

    def _typed(self, schema: dict[str, Any], depth: int) -> Any:
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            kind = self._rng.choice(kind)
        if kind is None:
            kind = next(
                (
                    name
                    for name, keys in (
                        ("object", ("properties", "patternProperties", "required", "minProperties",
                                    "additionalProperties", "propertyNames", "dependencies")),
                        ("array", ("items", "minItems", "prefixItems", "contains")),
                        ("string", ("pattern", "format", "minLength", "maxLength")),
                        ("number", ("minimum", "maximum", "multipleOf")),
                    )
                    if any(key in schema for key in keys)
                ),
                self._rng.choice(["string", "object", "boolean"]),
            )  # fmt: skip
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind == "string":
            return self._text(schema)
        if kind in ("number", "integer"):
            return self._number(schema, kind)
        return None if kind == "null" else self._rng.random() < 0.5

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        known = schema.get("properties")
        known = known if isinstance(known, dict) else {}
        required = schema.get("required")
        required = (
            [one for one in required if isinstance(one, str)] if isinstance(required, list) else []
        )
        optional = [name for name in known if name not in required]
        count = min(len(optional), self._rng.choice([0, 1, 2, 4])) if depth > 0 else 0
        chosen = set(required) | set(self._rng.sample(optional, count))
        found = {
            name: self.value(known.get(name, {}), depth - 1)
            for name in [*[one for one in known if one in chosen], *required]
        }
        if depth > 0 and self._rng.random() < 0.5:
            extra = schema.get("additionalProperties", {})
            patterns = schema.get("patternProperties")
            if isinstance(patterns, dict) and patterns:
                pattern = self._rng.choice(list(patterns))
                found[self._matching(pattern)] = self.value(patterns[pattern], depth - 1)
            elif extra is not False:
                found[self._rng.choice(_WORDS[2:])] = self.value(extra, depth - 1)
        least = schema.get("minProperties")
        while isinstance(least, int) and len(found) < least and optional:
            name = optional.pop()
            found[name] = self.value(known[name], depth - 1)
        return found

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        items = schema.get("items", {})
        low = schema.get("minItems", 0)
        low = low if isinstance(low, int) else 0
        count = min(max(low, self._rng.choice([0, 1, 2, 3]) if depth > 0 else 0), 12)
        prefix = schema.get("prefixItems", items if isinstance(items, list) else [])
        rest = schema.get("additionalItems", {}) if isinstance(items, list) else items
        return [
            self.value(prefix[at] if at < len(prefix) else rest, depth - 1) for at in range(count)
        ]

    def _text(self, schema: dict[str, Any]) -> str:
        pattern, name = schema.get("pattern"), schema.get("format")
        if isinstance(pattern, str):
            return self._matching(pattern)
        if isinstance(name, str) and name in _FORMATS:
            fitting = [word for word in _WORDS if re.fullmatch(_FORMATS[name], word)]
            return self._rng.choice(fitting) if fitting else self._matching(_FORMATS[name])
        word = self._rng.choice(_WORDS)
        low, high = schema.get("minLength", 0), schema.get("maxLength")
        if isinstance(low, int) and len(word) < low:
            word = (word or "x") * low
        return word[:high] if isinstance(high, int) else word

    def _matching(self, pattern: str) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                fitting = [word for word in _WORDS if re.search(pattern, word)]
                if fitting and self._rng.random() < 0.6:
                    return self._rng.choice(fitting)
                return _sampled(pattern, self._rng)
            except (re.error, RecursionError, OverflowError):
                return "a"

    def _number(self, schema: dict[str, Any], kind: str) -> float:
        low, high = schema.get("minimum"), schema.get("maximum")
        around = [0, 1, 2, 10, -1, 100, 8080]
        around += [one for one in (low, high) if isinstance(one, int | float)]
        around += [low + 1] if isinstance(low, int | float) else []
        value = self._rng.choice(around)
        return value if kind == "integer" or self._rng.random() < 0.7 else value + 0.5

    def broken(self, value: Any) -> Iterator[Any]:
        """The value with one thing changed."""
        for path, part in list(_parts(value))[:40]:
            for other in self._other(part):
                yield _with(value, path, other)

    def _other(self, part: Any) -> Iterator[Any]:
        if isinstance(part, dict):
            for name in list(part)[:8]:
                yield {key: each for key, each in part.items() if key != name}
            yield {**part, "zzUnknown": 1}
            yield [part]
        elif isinstance(part, list):
            yield part[:-1]
            yield [*part, part[0]] if part else ["zz"]
            yield [*part, {"zz": None}]
        elif isinstance(part, str):
            yield from (part + "~", "", 17, None, {})
        elif isinstance(part, bool) or part is None:
            yield from ("zz", 3)
        else:
            yield from (part + 0.25, -part - 1_000_003, str(part), part * 1000 + 7)


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    found = {**other, **one}
    for key in ("properties", "patternProperties"):
        if isinstance(one.get(key), dict) and isinstance(other.get(key), dict):
            found[key] = {**other[key], **one[key]}
            for name in one[key].keys() & other[key].keys():
                mine, theirs = one[key][name], other[key][name]
                if isinstance(mine, dict) and isinstance(theirs, dict):
                    found[key][name] = {**mine, **theirs}
    if isinstance(one.get("required"), list) and isinstance(other.get("required"), list):
        found["required"] = [*one["required"], *other["required"]]
    for key in ("allOf", "anyOf", "oneOf"):
        if key in one and key in other:
            found[key] = [*one[key], *other[key]] if key == "allOf" else other[key]
    return found


def _parts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield path, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _parts(item, (*path, key))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _parts(item, (*path, at))


def _with(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    if not path:
        return other
    copied = copy.copy(value)
    copied[path[0]] = _with(value[path[0]], path[1:], other)
    return copied


def _sampled(pattern: str, rng: random.Random) -> str:
    """A text that may have the pattern."""
    parser = importlib.import_module("re._parser")
    constants = importlib.import_module("re._constants")
    readable = re.sub(r"\(\?<([A-Za-z_]\w*)>", r"(?P<\1>", pattern)

    def of(parsed: Any) -> str:
        return "".join(one(op, argument) for op, argument in parsed)

    def one(op: Any, argument: Any) -> str:
        if op == constants.LITERAL:
            return chr(argument)
        if op == constants.NOT_LITERAL:
            return "a" if argument != 97 else "b"
        if op == constants.ANY:
            return rng.choice("ab1")
        if op == constants.IN:
            return member(argument)
        if op == constants.BRANCH:
            return of(rng.choice(argument[1]))
        if op == constants.SUBPATTERN:
            return of(argument[-1])
        if op in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            low, high, inner = argument
            return "".join(of(inner) for _ in range(rng.randint(low, min(int(high), low + 2))))
        return ""

    def member(items: Any) -> str:
        if items[0][0] == constants.NEGATE:
            return next(each for each in "ax1-_ é" if not re.fullmatch(_class(items), each))
        op, argument = rng.choice(items)
        if op == constants.LITERAL:
            return chr(argument)
        if op == constants.RANGE:
            return chr(rng.randint(argument[0], min(argument[1], argument[0] + 25)))
        return {"CATEGORY_DIGIT": "7", "CATEGORY_SPACE": " "}.get(str(argument), "w")

    def _class(items: Any) -> str:
        found = ""
        for op, argument in items[1:]:
            if op == constants.LITERAL:
                found += re.escape(chr(argument))
            elif op == constants.RANGE:
                found += f"{re.escape(chr(argument[0]))}-{re.escape(chr(argument[1]))}"
            else:
                found += {"CATEGORY_DIGIT": r"\d", "CATEGORY_SPACE": r"\s"}.get(
                    str(argument), r"\w"
                )
        return f"[{found}]"

    return of(parser.parse(readable))
