"""Kinds of argument values: how one is drawn, what JSON type it has, what such a parameter is
called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.ember.exchange import Json
from tests.ember.tables import DAYS, MONTHS
from tests.ember.words import (
    ABSTRACT,
    ADJECTIVES,
    FOODS,
    NATURE,
    OBJECTS,
    VERBS,
    city,
    first_name,
    full_name,
    made_up_word,
    plain_word,
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value. `listed` values are offered as an enum in the schema."""

    type: str
    draw: Callable[[Random], Json]
    describes: tuple[str, ...]
    listed: tuple[str, ...] | None = None


def _date(rng: Random) -> str:
    return f"{rng.randint(2020, 2032)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def _time(rng: Random) -> str:
    return f"{rng.randint(0, 23):02d}:{rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50)):02d}"


def _email(rng: Random) -> str:
    domain = rng.choice(("com", "org", "net", "io"))
    return f"{first_name(rng).lower()}@{made_up_word(rng, 2)}.{domain}"


def _phrase(rng: Random) -> str:
    noun = rng.choice(OBJECTS + ABSTRACT + NATURE)
    return rng.choice(
        (
            f"{rng.choice(ADJECTIVES)} {noun}",
            f"{noun} for {rng.choice(ABSTRACT)}",
            f"best {noun}",
            f"{plain_word(rng)} {noun}",
            noun,
            f"how to {rng.choice(VERBS)} a {noun}",
            f"{rng.choice(ADJECTIVES)} {plain_word(rng)} {noun}",
        )
    )


def _message(rng: Random) -> str:
    noun, place = (
        rng.choice(OBJECTS + ABSTRACT),
        rng.choice(("the office", "the station", "home", "the market", city(rng))),
    )
    return rng.choice(
        (
            f"I will be {rng.randint(2, 50)} minutes late",
            f"please bring the {noun}",
            f"see you at {place}",
            f"the {noun} is ready",
            f"I am at {place}",
            f"the {noun} is {rng.choice(ADJECTIVES)}",
            f"can you {rng.choice(VERBS)} the {noun}",
            f"we meet at {place} at {rng.randint(1, 12)}",
            f"happy birthday {first_name(rng)}",
            f"do not forget the {noun}",
            f"{rng.choice(VERBS)} the {noun} before {rng.choice(DAYS)}",
            f"I {rng.choice(VERBS)} the {plain_word(rng)} {noun}",
        )
    )


def _task(rng: Random) -> str:
    return rng.choice(
        (
            f"buy {rng.choice(FOODS)}",
            f"call {first_name(rng)}",
            f"{rng.choice(VERBS)} the {rng.choice(OBJECTS)}",
            f"pay the {plain_word(rng)} bill",
            f"write to {first_name(rng)}",
            f"pick up the {rng.choice(OBJECTS)}",
        )
    )


def _code(rng: Random) -> str:
    letters = "".join(rng.choice("ABCDEFGHKLMNPRSTUVWXYZ") for _ in range(rng.choice((1, 2, 3))))
    return f"{letters}{rng.choice(('-', ''))}{rng.randint(10, 9999)}"


def _file(rng: Random) -> str:
    ending = rng.choice(("txt", "pdf", "csv", "png", "md", "py", "json"))
    more = rng.choice(("", "_" + plain_word(rng), str(rng.randint(1, 99))))
    return f"{plain_word(rng)}{more}.{ending}"


def _url(rng: Random) -> str:
    path = rng.choice(("", "/" + plain_word(rng)))
    return f"https://{made_up_word(rng, 2)}.{rng.choice(('com', 'org', 'net'))}{path}"


def _choice(*values: str) -> Callable[[Random], Json]:
    return lambda rng: rng.choice(values)


def _listed(*values: str) -> Kind:
    return Kind("string", _choice(*values), ("one of the listed values", "the choice", ""), values)


KINDS: dict[str, Kind] = {
    "city": Kind("string", city, ("the city", "name of the city", "a city", "the place", "")),
    "name": Kind("string", first_name, ("the name", "name of the person", "a person", "")),
    "person": Kind(
        "string",
        lambda rng: full_name(rng) if rng.random() < 0.5 else first_name(rng),
        ("the person", "full name", "who", ""),
    ),
    "email": Kind("string", _email, ("the address", "email address", "")),
    "day": Kind(
        "string",
        lambda rng: rng.choice((*DAYS, "today", "tomorrow", "tonight")),
        ("the day", "day of the week", "when", ""),
    ),
    "weekday": Kind("string", lambda rng: rng.choice(DAYS), ("the day", "day of the week", "")),
    "month": Kind("string", lambda rng: rng.choice(MONTHS), ("the month", "name of the month", "")),
    "date": Kind("string", _date, ("the date", "date as YYYY-MM-DD", "ISO date", "")),
    "time": Kind("string", _time, ("the time", "time as HH:MM", "")),
    "small": Kind("integer", lambda rng: rng.randint(1, 12), ("how many", "the number", "")),
    "count": Kind(
        "integer",
        lambda rng: rng.randint(1, 60) if rng.random() < 0.7 else rng.randint(61, 500),
        ("how many", "the amount", "a whole number", ""),
    ),
    "large": Kind("integer", lambda rng: rng.randint(100, 99999), ("the number", "numeric id", "")),
    "number": Kind(
        "number",
        lambda rng: (
            rng.randint(0, 999) if rng.random() < 0.6 else round(rng.randint(1, 9999) / 100, 2)
        ),
        ("a number", "the value", ""),
    ),
    "price": Kind(
        "number",
        lambda rng: rng.randint(1, 999) if rng.random() < 0.5 else rng.randint(100, 9999) / 100,
        ("the price", "the amount", ""),
    ),
    "percent": Kind("integer", lambda rng: rng.randint(0, 100), ("in percent", "0 to 100", "")),
    "query": Kind(
        "string", _phrase, ("what to look for", "the search text", "the words to find", "")
    ),
    "message": Kind("string", _message, ("the text", "what to say", "")),
    "task": Kind("string", _task, ("what to do", "the task", "")),
    "thing": Kind(
        "string",
        lambda rng: rng.choice(OBJECTS) if rng.random() < 0.7 else plain_word(rng),
        ("the thing", "the name", ""),
    ),
    "food": Kind("string", lambda rng: rng.choice(FOODS), ("the food", "")),
    "word": Kind("string", plain_word, ("a word", "the word", "")),
    "code": Kind("string", _code, ("the code", "the id", "identifier", "")),
    "file": Kind("string", _file, ("the file", "file name", "path of the file", "")),
    "url": Kind("string", _url, ("the address", "web address", "")),
    "color": Kind(
        "string",
        _choice("red", "blue", "green", "yellow", "white", "purple", "orange", "pink"),
        ("the color", ""),
    ),
    "room": Kind(
        "string",
        lambda rng: rng.choice(
            (
                "kitchen",
                "bedroom",
                "bathroom",
                "office",
                "hall",
                "garage",
                "garden",
                "cellar",
                "living room",
                plain_word(rng),
            )
        ),
        ("the room", "which room", ""),
    ),
    "device": Kind(
        "string",
        lambda rng: rng.choice(
            (
                "lamp",
                "heater",
                "fan",
                "radio",
                "tv",
                "oven",
                "door",
                "camera",
                "printer",
                "alarm",
                plain_word(rng),
            )
        ),
        ("the device", ""),
    ),
    "language": Kind(
        "string",
        _choice(
            "French",
            "German",
            "Spanish",
            "Italian",
            "Japanese",
            "Polish",
            "Dutch",
            "Korean",
            "Turkish",
            "Greek",
        ),
        ("the language", "target language", ""),
    ),
    "currency": Kind(
        "string",
        _choice("USD", "EUR", "GBP", "JPY", "CHF", "CAD", "INR", "CNY", "SEK", "MXN"),
        ("currency code", ""),
    ),
    "flag": Kind(
        "boolean", lambda rng: rng.random() < 0.5, ("true or false", "whether it is on", "")
    ),
    "words": Kind(
        "array",
        lambda rng: [plain_word(rng) for _ in range(rng.randint(2, 4))],
        ("the list", "a list of words", ""),
    ),
    "names": Kind(
        "array",
        lambda rng: [first_name(rng) for _ in range(rng.randint(2, 4))],
        ("the people", "list of names", ""),
    ),
    "numbers": Kind(
        "numbers",
        lambda rng: [rng.randint(0, 99) for _ in range(rng.randint(2, 5))],
        ("the numbers", "list of numbers", ""),
    ),
    "units": _listed("celsius", "fahrenheit"),
    "switch": _listed("on", "off"),
    "priority": _listed("low", "medium", "high"),
    "size": _listed("small", "medium", "large"),
    "status": _listed("open", "closed", "pending"),
    "direction": _listed("up", "down", "left", "right"),
    "speed": _listed("slow", "normal", "fast"),
    "transport": _listed("car", "train", "bus", "bicycle"),
    "length": _listed("meters", "feet", "inches", "kilometers", "miles"),
    "genre": _listed("rock", "jazz", "pop", "classical", "folk"),
    "format": _listed("pdf", "csv", "json", "text"),
    "seat": _listed("window", "aisle", "middle"),
    "operation": _listed("add", "subtract", "multiply", "divide"),
}


def schema_of(rng: Random, kind: Kind, draw_description: bool) -> dict[str, Json]:
    """The JSON schema of one parameter of `kind`."""
    schema: dict[str, Json]
    if kind.type == "array":
        schema = {"type": "array", "items": {"type": "string"}}
    elif kind.type == "numbers":
        schema = {"type": "array", "items": {"type": "integer"}}
    else:
        schema = {"type": kind.type}
    if kind.listed is not None:
        schema["enum"] = list(kind.listed)
    description = rng.choice(kind.describes) if draw_description else ""
    if description:
        schema["description"] = description
    return schema


def said(value: Json) -> str:
    """`value` as somebody says it in a question."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(map(str, value[:-1])) + " and " + str(value[-1])
    return str(value)
