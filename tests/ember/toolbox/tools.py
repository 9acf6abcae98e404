"""Draws a tool: its schema, and a way to make questions with the call that answers them.

Half of the tools come from the catalogue of everyday domains, half are put together from a verb, a
noun and parameters, so that no schema can be learned by heart. Held out by the name of the tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.ember.exchange import Call, Json, Split, held_out, phrase
from tests.ember.notation import words
from tests.ember.toolbox.catalogue import ACTIONS, Action, Slot
from tests.ember.toolbox.values import KINDS, said, schema_of
from tests.ember.words import ABSTRACT, COMMON_WORDS, OBJECTS, made_up_word

PINNED = frozenset(
    {
        "getweather",
        "add",
        "gettime",
        "getcurrenttime",
        "getcurrentweather",
        "searchweb",
        "sendemail",
        "settimer",
        "calculate",
    }
)
"""Names people try first: always trained, never evaluated."""

SIBLING_SHARE = 0.25

VERBS = words(
    """get set create delete update find list send open close start stop check add remove move copy
    save load count show book order cancel confirm assign approve reject print scan measure
    clean repair rename share lock unlock archive restore merge split publish pause resume reset
    test rate review tag filter group export import sync enable disable schedule"""
)
FIELDS: tuple[tuple[str, str], ...] = (
    ("name", "thing"),
    ("label", "word"),
    ("title", "query"),
    ("owner", "name"),
    ("author", "person"),
    ("manager", "person"),
    ("count", "count"),
    ("quantity", "count"),
    ("amount", "price"),
    ("price", "price"),
    ("weight", "number"),
    ("height", "count"),
    ("width", "count"),
    ("level", "percent"),
    ("id", "large"),
    ("code", "code"),
    ("serial", "code"),
    ("reference", "code"),
    ("number", "large"),
    ("city", "city"),
    ("country_code", "currency"),
    ("place", "city"),
    ("target", "thing"),
    ("source", "thing"),
    ("date", "date"),
    ("day", "weekday"),
    ("due", "date"),
    ("month", "month"),
    ("time", "time"),
    ("deadline", "date"),
    ("color", "color"),
    ("size", "size"),
    ("status", "status"),
    ("priority", "priority"),
    ("speed", "speed"),
    ("format", "format"),
    ("direction", "direction"),
    ("active", "flag"),
    ("public", "flag"),
    ("urgent", "flag"),
    ("silent", "flag"),
    ("email", "email"),
    ("file", "file"),
    ("url", "url"),
    ("room", "room"),
    ("language", "language"),
    ("comment", "message"),
    ("reason", "query"),
    ("note", "message"),
    ("tags", "words"),
    ("members", "names"),
    ("values", "numbers"),
    ("unit", "length"),
    ("version", "number"),
    ("score", "percent"),
    ("page", "small"),
    ("limit", "small"),
    ("category", "word"),
    ("group", "word"),
    ("kind", "word"),
    ("material", "thing"),
    ("duration", "count"),
    ("year", "large"),
    ("team", "word"),
    ("key", "word"),
)


@dataclass(frozen=True, slots=True)
class Ask:
    """A question and the call it needs."""

    question: str
    call: Call


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as offered, with a maker of questions for it.

    `topic` is what it does: two tools of one topic are never offered together. `noun` is what it
    works on.
    """

    name: str
    topic: str
    noun: str
    spec: dict[str, Json]
    ask: Callable[[Random], Ask]
    known: bool
    required: tuple[str, ...]


def _name(rng: Random, verb: str, noun: str) -> str:
    draw = rng.random()
    if draw < 0.75:
        return f"{verb}_{noun}" if noun else verb
    if draw < 0.85:
        return verb + "".join(part.capitalize() for part in noun.split("_"))
    return f"{noun}_{verb}" if draw < 0.93 else noun


def held_out_name(name: str) -> bool:
    """Whether a tool of this name belongs to the evaluation; styles of writing one name count as
    one.
    """
    bare = name.lower().replace("_", "")
    return bare not in PINNED and held_out(f"tool {bare}")


def _spec(
    rng: Random, name: str, describe: str, fields: list[tuple[str, str, bool]]
) -> dict[str, Json]:
    """An OpenAI tool object; `fields` are (name, kind, required)."""
    with_text = rng.random() < 0.5
    parameters: dict[str, Json] = {
        "type": "object",
        "properties": {field: schema_of(rng, KINDS[kind], with_text) for field, kind, _ in fields},
    }
    required = [field for field, _, needed in fields if needed]
    if required or rng.random() < 0.5:
        parameters["required"] = required
    if rng.random() < 0.15:
        parameters["additionalProperties"] = False
    return {
        "type": "function",
        "function": {"name": name, "description": describe, "parameters": parameters},
    }


_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")


def _fill(rng: Random, pattern: str, values: dict[str, Json], names: dict[str, str]) -> str:
    """Drop the `[...]` of absent slots, then put in the values."""

    def keep(match: re.Match[str]) -> str:
        slots = re.findall(r"\{(\w+)\}", match.group(1))
        return match.group(1) if all(slot in values for slot in slots) else ""

    text = _OPTIONAL.sub(keep, pattern)
    return phrase(rng, text, **{slot: said(value) for slot, value in values.items()}, **names)


def _with_preposition(text: str, day: str) -> str:
    """Say "on Monday" where `text` has only "Monday"; "tomorrow" needs nothing."""
    if day[0].islower() or re.search(rf"(on|for|of) {day}", text):
        return text
    return text.replace(f" {day}", f" on {day}", 1)


def catalogue_tool(rng: Random, split: Split) -> Tool:
    """A tool of an everyday domain on the side of `split`."""
    while True:
        action = rng.choice(ACTIONS)
        verb, noun = rng.choice(action.verbs), rng.choice(action.nouns)
        name = _name(rng, verb, noun)
        if held_out_name(name) == (split == "eval"):
            return _from_action(rng, action, name, verb, noun.replace("_", " "))


def _from_action(rng: Random, action: Action, name: str, verb: str, noun: str) -> Tool:
    slots = [slot for slot in action.slots if not slot.optional or rng.random() < 0.6]
    taken: dict[str, Slot] = {}
    for slot in slots:
        free = [each for each in slot.names if each not in taken]
        if free:
            taken[rng.choice(free)] = slot
    fields = [(field, slot.kind, not slot.optional) for field, slot in taken.items()]
    describe = (
        action.describe
        if rng.random() < 0.7
        else rng.choice(
            (f"{verb} {noun}".capitalize(), f"{action.describe}.", f"Use this to {verb} the {noun}")
        )
    )

    def ask(rng: Random) -> Ask:
        pattern = rng.choice(action.asks)
        used = {
            field: slot
            for field, slot in taken.items()
            if f"{{{slot.letter}}}" in pattern and (not slot.optional or rng.random() < 0.6)
        }
        values = {field: KINDS[slot.kind].draw(rng) for field, slot in used.items()}
        spoken = {slot.letter: values[field] for field, slot in used.items()}
        text = _fill(rng, pattern, spoken, {"noun": noun, "verb": verb})
        for field, slot in used.items():
            if slot.kind == "day":
                text = _with_preposition(text, str(values[field]))
        return Ask(text, Call(name, values))

    required = tuple(field for field, _, needed in fields if needed)
    spec = _spec(rng, name, describe, fields)
    return Tool(name, action.describe, noun, spec, ask, action.known, required)


def procedural_tool(rng: Random, split: Split, noun: str | None = None) -> Tool:
    """A tool of a random verb, noun (or `noun`) and parameters on the side of `split`."""
    while True:
        verb = rng.choice(VERBS)
        subject = noun or _noun(rng)
        name = _name(rng, verb, subject)
        if name != subject and held_out_name(name) == (split == "eval"):
            return _from_words(rng, name, verb, subject)


def _noun(rng: Random) -> str:
    return rng.choice(OBJECTS + ABSTRACT) if rng.random() < 0.75 else made_up_word(rng, 2)


def _from_words(rng: Random, name: str, verb: str, noun: str) -> Tool:
    chosen = dict(rng.sample(FIELDS, rng.choice((1, 1, 2, 2, 3, 4))))
    for field in list(chosen):
        if rng.random() < 0.3:
            word = rng.choice(COMMON_WORDS)
            other = (f"{noun}_{field}", f"{word}_{field}", made_up_word(rng, 2), word)
            chosen[rng.choice(other)] = chosen.pop(field)
    needed = {field: rng.random() < 0.7 for field in chosen}
    fields = [(field, kind, needed[field]) for field, kind in chosen.items()]
    describe = rng.choice(
        (f"{verb} a {noun}", f"{verb} the {noun}", f"{verb}s {noun}s", f"tool to {verb} a {noun}")
    ).capitalize()

    def ask(rng: Random) -> Ask:
        used = [field for field in chosen if needed[field] or rng.random() < 0.6]
        values = {field: KINDS[chosen[field]].draw(rng) for field in used}
        return Ask(_stated(rng, verb, noun, values), Call(name, values))

    spec = _spec(rng, name, describe, fields)
    required = tuple(field for field in chosen if needed[field])
    return Tool(name, f"{verb} {noun}", noun, spec, ask, False, required)


def _stated(rng: Random, verb: str, noun: str, values: dict[str, Json]) -> str:
    """A question that names every parameter and its value."""
    link = rng.choice((" {v}", " {v}", " = {v}", ": {v}", " set to {v}", " is {v}"))
    parts = []
    for field, value in values.items():
        shown = field.replace("_", " ") if rng.random() < 0.7 else field
        parts.append(shown + link.format(v=said(value)))
    order = parts if rng.random() < 0.7 else rng.sample(parts, len(parts))
    joined = (
        ", ".join(order)
        if rng.random() < 0.5 or len(order) < 2
        else ", ".join(order[:-1]) + " and " + order[-1]
    )
    start = rng.choice(
        (
            f"{verb} the {noun}",
            f"{verb} a {noun}",
            f"please {verb} the {noun}",
            f"can you {verb} the {noun}",
            f"{verb} {noun}",
            f"I want to {verb} a {noun}",
            f"I need you to {verb} the {noun}",
        )
    )
    if not order:
        return start
    return start + rng.choice((" with ", " with ", ", ", ": ", " where ")) + joined


def draw_tool(rng: Random, split: Split) -> Tool:
    """A tool of either sort."""
    return catalogue_tool(rng, split) if rng.random() < 0.6 else procedural_tool(rng, split)


def draw_tools(rng: Random, split: Split, count: int) -> list[Tool]:
    """`count` tools of different topics; now and then two do different things to one noun."""
    tools: dict[str, Tool] = {}
    while len(tools) < count:
        tool = draw_tool(rng, split)
        if tools and rng.random() < SIBLING_SHARE:
            tool = procedural_tool(rng, split, next(iter(tools.values())).noun.replace(" ", "_"))
        if all(tool.name != other.name for other in tools.values()):
            tools.setdefault(tool.topic, tool)
    found = list(tools.values())
    rng.shuffle(found)
    return found
