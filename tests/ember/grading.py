"""Decides whether a reply is right. Every check reads only the reply and what the question asked
for.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass

from tests.ember.drivers import Reply
from tests.ember.exchange import Call, Conversation, Json, normalise

SHORTEST_STORY, LONGEST_STORY = 50, 180
JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


@dataclass(frozen=True, slots=True)
class Grade:
    """`right` counts for accuracy; `well_formed` only says that the tool calls could
    be executed.
    """

    right: bool
    well_formed: bool = True


def holds(text: str, value: str) -> bool:
    """Whether `value` stands in `text` as whole words, whatever the case."""
    return re.search(rf"(?<![\w.]){re.escape(normalise(value))}(?!\w)", normalise(text)) is not None


def last_number(text: str) -> str | None:
    """The last number of `text`, as written."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", text)
    return numbers[-1] if numbers else None


def fits(value: Json, schema: dict[str, Json]) -> bool:
    """Whether `value` matches the small part of JSON schema that the tools use."""
    kind = schema.get("type")
    if kind in JSON_TYPES and (
        not isinstance(value, JSON_TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")
    ):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, list) and "items" in schema:
        return all(fits(item, schema["items"]) for item in value)
    return True


def callable_with(call: Call, tools: tuple[dict[str, Json], ...]) -> bool:
    """Whether `call` names an offered tool and its arguments match the tool's schema."""
    for tool in tools:
        function = tool["function"]
        if function["name"] != call.name:
            continue
        properties = function["parameters"]["properties"]
        required = function["parameters"].get("required", [])
        return all(name in call.arguments for name in required) and all(
            name in properties and fits(value, properties[name])
            for name, value in call.arguments.items()
        )
    return False


def _key(call: Call) -> str:
    return json.dumps([call.name, call.arguments], sort_keys=True)


def _calls(wanted: Conversation, reply: Reply) -> Grade:
    well_formed = (
        reply.malformed == 0
        and bool(reply.calls)
        and all(callable_with(call, wanted.tools) for call in reply.calls)
    )
    right = reply.malformed == 0 and Counter(map(_key, reply.calls)) == Counter(
        map(_key, wanted.calls)
    )
    return Grade(right, well_formed)


def _json(wanted: str, text: str) -> bool:
    try:
        return bool(json.loads(text) == json.loads(wanted))
    except ValueError:
        return False


def _story(text: str, about: str) -> bool:
    return SHORTEST_STORY <= len(text.split()) <= LONGEST_STORY and about.lower() in text.lower()


def grade(wanted: Conversation, reply: Reply) -> Grade:
    """Judge `reply` to the conversation `wanted` by its kind of check."""
    if wanted.check == "call":
        return _calls(wanted, reply)
    unasked = bool(reply.calls) or reply.malformed > 0
    if wanted.check == "no_call":
        return Grade(not unasked and holds(reply.content, wanted.value), not unasked)
    text = reply.content
    right = {
        "value": lambda: holds(text, wanted.value),
        "ending": lambda: holds(text.rsplit(":", 1)[-1], wanted.value),
        "exact": lambda: normalise(text) == normalise(wanted.value),
        "number": lambda: last_number(text) == last_number(wanted.value),
        "json": lambda: _json(wanted.value, text),
        "unknown": lambda: "don't know" in text.lower() or "do not know" in text.lower(),
        "story": lambda: _story(text, wanted.value),
    }[wanted.check]()
    return Grade(right and not unasked, not unasked)
