"""JSON on request: objects, lists and extraction, nothing but valid JSON. Held out by value."""

from __future__ import annotations

import json
from random import Random

from tests.ember.exchange import Exchange, Json, phrase
from tests.ember.words import (
    ADJECTIVES,
    CITIES,
    FOODS,
    FRUITS,
    OBJECTS,
    city,
    first_name,
    full_name,
)

ONLY = "(|||. Only JSON|. Return only JSON|. Answer with JSON only|. No other text|, nothing else)"
COUNTED = tuple(thing for thing in OBJECTS if not thing.endswith(("s", "sh", "ch", "x")))
COLORS = ("red", "blue", "green", "yellow", "black", "white")


def _exchange(question: str, value: Json) -> Exchange:
    text = json.dumps(value, ensure_ascii=False)
    return Exchange(question, text, text, question, "json", fixed=True)


def _field(rng: Random) -> tuple[str, Json, str]:
    """A key, its value, and the words that state the value after a name."""
    kind = rng.randrange(7)
    if kind == 0:
        age = rng.randint(1, 99)
        return (
            "age",
            age,
            phrase(rng, "(who is {a}|aged {a}|age {a}|{a} years old|who is {a} years old)", a=age),
        )
    if kind == 1:
        place = city(rng)
        return "city", place, phrase(rng, "(from|living in|who lives in|in) {p}", p=place)
    if kind == 2:
        job = rng.choice(
            (
                "baker",
                "teacher",
                "pilot",
                "farmer",
                "doctor",
                "driver",
                "painter",
                "nurse",
                "cook",
                "writer",
            )
        )
        return "job", job, phrase(rng, "(who works as a|working as a|a|who is a) {j}", j=job)
    if kind == 3:
        shade = rng.choice(COLORS)
        return (
            "color",
            shade,
            phrase(rng, "(who likes|with favorite color|with the color|with color) {c}", c=shade),
        )
    if kind == 4:
        number = rng.randint(1, 500)
        return "id", number, phrase(rng, "with (id|the id|number) {n}", n=number)
    if kind == 5:
        height = rng.randint(90, 210)
        return (
            "height",
            height,
            phrase(rng, "(with height {h}|{h} cm tall|who is {h} cm tall)", h=height),
        )
    fruit = rng.choice(FRUITS)
    return "fruit", fruit, phrase(rng, "who (likes|eats|loves) {f}", f=fruit)


def _fields(rng: Random, most: int) -> list[tuple[str, Json, str]]:
    chosen = {field[0]: field for field in (_field(rng) for _ in range(rng.randint(1, most)))}
    return list(chosen.values())


def person(rng: Random) -> Exchange:
    """An object for a described person; the keys are listed in the request."""
    name = full_name(rng) if rng.random() < 0.3 else first_name(rng)
    fields = _fields(rng, 3)
    said = ", ".join(field[2] for field in fields)
    if len(fields) > 1 and rng.random() < 0.5:
        said = ", ".join(field[2] for field in fields[:-1]) + " and " + fields[-1][2]
    keys = ["name", *(field[0] for field in fields)]
    listed = ", ".join(keys[:-1]) + " and " + keys[-1]
    lead = (
        "(return|give me|write|output|make|create|produce) (a JSON object|JSON|a JSON|the"
        " JSON|valid JSON)"
    )
    question = phrase(
        rng,
        lead + " with (the keys |the fields |) {k} for {n}, {s}" + ONLY,
        k=listed,
        n=name,
        s=said,
    )
    return _exchange(question, {"name": name, **{key: value for key, value, _ in fields}})


def extraction(rng: Random) -> Exchange:
    """An object from a sentence."""
    name, place, age = first_name(rng), city(rng), rng.randint(1, 99)
    kind = rng.randrange(6)
    if kind == 0:
        text, value = (
            f"{name} is {age} years old and lives in {place}.",
            {"name": name, "age": age, "city": place},
        )
    elif kind == 1:
        count, thing = rng.randint(2, 60), rng.choice(COUNTED)
        text, value = (
            f"{name} bought {count} {thing}s for {age} dollars.",
            {"name": name, "item": thing, "count": count, "price": age},
        )
    elif kind == 2:
        other = first_name(rng)
        text, value = (
            f"{name} met {other} in {place}.",
            {"first": name, "second": other, "city": place},
        )
    elif kind == 3:
        thing, shade = rng.choice(OBJECTS), rng.choice(COLORS)
        text, value = (
            f"The {thing} is {shade} and costs {age} dollars.",
            {"item": thing, "color": shade, "price": age},
        )
    elif kind == 4:
        day, hour = (
            rng.choice(
                ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
            ),
            rng.randint(1, 12),
        )
        text, value = (
            f"The meeting with {name} is on {day} at {hour}.",
            {"name": name, "day": day, "hour": hour},
        )
    else:
        other = city(rng)
        text, value = (
            f"{name} flies from {place} to {other}.",
            {"name": name, "from": place, "to": other},
        )
    keys = list(value)
    listed = ", ".join(keys[:-1]) + " and " + keys[-1]
    lead = (
        "(extract|get|take|pull|find) {k} from (this|this sentence|the sentence|this text) (as"
        " JSON|and return JSON|in JSON|into JSON): {t}"
    )
    if rng.random() < 0.3:
        lead = "(turn|convert|change) (this|this sentence) into JSON with {k}: {t}"
    return _exchange(phrase(rng, lead, k=listed, t=text), value)


def array(rng: Random) -> Exchange:
    """A list as a JSON array."""
    kind = rng.randrange(4)
    values: list[Json]
    if kind == 0:
        start = rng.randint(0, 60)
        values = list(range(start, start + rng.randint(2, 8)))
        question = phrase(
            rng,
            "(return|give me|write|output) (a JSON array|a JSON list) of the numbers from {a}"
            " to {b}" + ONLY,
            a=values[0],
            b=values[-1],
        )
        return _exchange(question, values)
    pool = (FRUITS + FOODS, COLORS + ADJECTIVES, CITIES + OBJECTS)[kind - 1]
    values = list(dict.fromkeys(rng.choice(pool) for _ in range(rng.randint(2, 6))))
    said = ", ".join(map(str, values))
    if rng.random() < 0.5 and len(values) > 1:
        said = ", ".join(map(str, values[:-1])) + " and " + str(values[-1])
    question = phrase(
        rng,
        "(return|give me|write|output|make) (a JSON array|a JSON list|a list in JSON) (of|with) {v}"
        + ONLY,
        v=said,
    )
    if rng.random() < 0.3:
        question = phrase(
            rng, "(turn|convert|put) (this list|these) into (JSON|a JSON array): {v}", v=said
        )
    return _exchange(question, values)


def pairs(rng: Random) -> Exchange:
    """Explicit keys and values of every JSON type."""
    names = rng.sample(
        (
            "name",
            "count",
            "open",
            "size",
            "title",
            "price",
            "ready",
            "color",
            "label",
            "total",
            "active",
            "kind",
            "city",
            "level",
        ),
        rng.randint(2, 4),
    )
    value: dict[str, Json] = {}
    for name in names:
        value[name] = rng.choice(
            (
                rng.randint(0, 999),
                rng.choice(OBJECTS),
                city(rng),
                rng.random() < 0.5,
                rng.randint(1, 99) + 0.5,
            )
        )
    shown = ", ".join(
        f"{key} {json.dumps(v) if isinstance(v, bool) else v}" for key, v in value.items()
    )
    if rng.random() < 0.5:
        shown = " and ".join(
            f"{key} {rng.choice(('=', 'set to', 'equal to'))}"
            f" {json.dumps(v) if isinstance(v, bool) else v}"
            for key, v in value.items()
        )
    question = phrase(
        rng,
        "(return|give me|write|output|make) (a JSON object|JSON|an object in JSON) with {s}" + ONLY,
        s=shown,
    )
    return _exchange(question, value)


GENERATORS = ((person, 5), (extraction, 4), (array, 3), (pairs, 3))
