"""Conversations with tools: one call, two calls at once, no call, a missing tool, a missing
argument, and results put into words.
"""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

from tests.ember.exchange import (
    Call,
    Conversation,
    Exchange,
    Json,
    Split,
    Turn,
    draw,
    phrase,
    sentence,
)
from tests.ember.skills import arithmetic, hearth, letters, talk, world
from tests.ember.toolbox.tools import Ask, Tool, draw_tool, draw_tools
from tests.ember.words import NATURE, city, first_name, plain_word

NO_TOOL = "I have no tool for that."
RESULT_KEYS = (
    "status",
    "temperature",
    "condition",
    "total",
    "price",
    "name",
    "distance",
    "count",
    "time",
    "date",
    "id",
    "result",
    "level",
    "city",
    "duration",
    "title",
    "rate",
    "owner",
    "color",
    "score",
)
SYSTEM_MESSAGES = (
    "You are a helpful assistant.",
    "You can use tools.",
    "Use the tools when they help.",
    "You are an assistant with tools.",
    "Answer the user's questions.",
)
CALM = (
    talk.greeting,
    talk.thanks,
    talk.abilities,
    talk.name,
    world.capital,
    world.opposite,
    world.animal,
    world.shape,
    hearth.command,
    hearth.environment,
    letters.spelling,
    talk.maker,
)


def _scalar(rng: Random, key: str) -> Json:
    if key in ("temperature", "total", "count", "distance", "level", "duration", "score", "id"):
        return rng.randint(-5, 40) if key == "temperature" else rng.randint(1, 999)
    if key in ("price", "rate"):
        return rng.randint(1, 9999) / 100
    if key == "city":
        return city(rng)
    if key in ("name", "owner"):
        return first_name(rng)
    return rng.choice(
        (
            plain_word(rng),
            rng.choice(
                ("sunny", "cloudy", "rain", "open", "closed", "ready", "sent", "done", "on the way")
            ),
            rng.choice(NATURE),
        )
    )


def _listed(values: list[str]) -> str:
    return values[0] if len(values) == 1 else ", ".join(values[:-1]) + " and " + values[-1]


def result(rng: Random) -> tuple[str, str, str]:
    """A tool result, the sentence for it, and a value that the sentence must hold."""
    kind = rng.randrange(10)
    if kind < 5:
        keys = (
            rng.sample(RESULT_KEYS, rng.choice((1, 2, 2, 3)))
            if rng.random() < 0.8
            else [plain_word(rng)]
        )
        values = {key: _scalar(rng, key) for key in keys}
        parts = [f"the {key.replace('_', ' ')} is {value}" for key, value in values.items()]
        return json.dumps(values), sentence(_listed(parts)) + ".", str(values[keys[0]])
    if kind == 5:
        good = rng.random() < 0.6
        key = rng.choice(("ok", "success", "done"))
        return (
            json.dumps({key: good}),
            "Done." if good else "That did not work.",
            "Done" if good else "did not work",
        )
    if kind == 6:
        problem = rng.choice(
            (
                "not found",
                "no access",
                "timeout",
                "unknown city",
                "service down",
                f"{plain_word(rng)} missing",
                f"bad {plain_word(rng)}",
            )
        )
        return json.dumps({"error": problem}), f"The tool failed: {problem}.", problem
    if kind == 7:
        listed = [plain_word(rng) for _ in range(rng.randint(2, 4))]
        key = rng.choice(("items", "results", "names", "files", "books"))
        text = json.dumps(listed) if rng.random() < 0.5 else json.dumps({key: listed})
        lead = "The results are" if text.startswith("[") else f"The {key} are"
        return text, f"{lead} {_listed(listed)}.", listed[0]
    plain = (
        str(rng.randint(0, 9999))
        if kind == 8
        else rng.choice(
            (
                f"{rng.randint(-5, 40)} degrees, {rng.choice(('sunny', 'cloudy', 'rain'))}",
                f"{plain_word(rng)} {plain_word(rng)}",
                first_name(rng),
                f"{rng.randint(1, 99)} {plain_word(rng)}s",
            )
        )
    )
    return plain, f"The result is {plain}.", plain


def _call_turns(rng: Random, tools: list[Tool]) -> tuple[str, tuple[Call, ...]]:
    """A question and its calls: one, or two at once."""
    tool = rng.choice(tools)
    first = tool.ask(rng)
    if rng.random() < 0.75:
        return first.question, (first.call,)
    other = rng.choice(tools) if rng.random() < 0.6 else tool
    second = other.ask(rng)
    for _ in range(5):
        if second.call != first.call:
            break
        second = other.ask(rng)
    if second.call == first.call:
        return first.question, (first.call,)
    joint = rng.choice((" and ", ". Also ", " and also ", ", and ", ". Then ", "? And ", "; "))
    return first.question.rstrip("?. ") + joint + second.question, (first.call, second.call)


def _missing_argument(rng: Random, tools: list[Tool]) -> Exchange | None:
    """A request for a procedural tool without one of its arguments."""
    tool = rng.choice(tools)
    if not tool.required or "_" not in tool.name:
        return None
    words = tool.name.replace("_", " ")
    question = phrase(rng, "(please {w}|{w}|can you {w}?|I want to {w}|{w} for me)", w=words)
    wanted = _listed([field.replace("_", " ") for field in tool.required])
    return Exchange(question, f"Please tell me the {wanted}.", wanted, question, "no_call")


def _without_call(rng: Random, split: Split, tools: list[Tool]) -> Exchange:
    """A question that needs no tool, needs one that is not there, or lacks an argument."""
    kind = rng.random()
    if kind < 0.45:
        return replace(draw(rng, split, rng.choice(CALM)), check="value")
    if kind < 0.55 and not any(tool.known for tool in tools):
        return replace(draw(rng, split, arithmetic.addition))
    if kind < 0.7:
        asked = _missing_argument(rng, tools)
        if asked is not None:
            return asked
    topics = {tool.topic for tool in tools}
    while True:
        absent = draw_tool(rng, split)
        if absent.topic not in topics and not absent.known:
            question = absent.ask(rng).question
            return Exchange(question, NO_TOOL, "no tool", question, "no_call")


def polish(rng: Random, question: str) -> str:
    """Vary the casing and the closing of a question; values keep their case."""
    if rng.random() < 0.5:
        question = sentence(question)
    draw_ = rng.random()
    if draw_ < 0.12:
        return question.rstrip("?.")
    if draw_ < 0.2 and question[-1].isalnum():
        return question + "."
    return question


def _system(rng: Random) -> tuple[Turn, ...]:
    return (Turn("system", rng.choice(SYSTEM_MESSAGES)),) if rng.random() < 0.25 else ()


def _results(rng: Random, calls: tuple[Call, ...]) -> tuple[list[Turn], str, str]:
    outcomes = [result(rng) for _ in calls]
    return (
        [Turn("tool", outcome[0]) for outcome in outcomes],
        " ".join(o[1] for o in outcomes),
        outcomes[-1][2],
    )


def call_conversation(rng: Random, split: Split) -> Conversation:
    """One question that ends in the call, as the evaluation asks it."""
    tools = draw_tools(rng, split, rng.choice((1, 2, 2, 3, 3, 4)))
    question, calls = _call_turns(rng, tools)
    question = polish(rng, question)
    turns = (*_system(rng), Turn("user", question), Turn("assistant", "", calls))
    return Conversation(
        "tool calls", turns, question, "call", "", tuple(t.spec for t in tools), calls
    )


def no_call_conversation(rng: Random, split: Split) -> Conversation:
    """One question with tools offered and none called for."""
    tools = draw_tools(rng, split, rng.choice((1, 2, 3, 4)))
    exchange = _without_call(rng, split, tools)
    question = polish(rng, exchange.question)
    turns = (*_system(rng), Turn("user", question), Turn("assistant", exchange.answer))
    return Conversation(
        "tools not needed", turns, question, "no_call", exchange.short, tuple(t.spec for t in tools)
    )


def result_conversation(rng: Random, split: Split) -> Conversation:
    """A question, its call, the result, and the sentence for it."""
    tools = draw_tools(rng, split, rng.choice((1, 2, 3)))
    question, calls = _call_turns(rng, tools)
    replies, answer, value = _results(rng, calls)
    turns = (
        *_system(rng),
        Turn("user", polish(rng, question)),
        Turn("assistant", "", calls),
        *replies,
        Turn("assistant", answer),
    )
    return Conversation(
        "tool results", turns, question, "value", value, tuple(t.spec for t in tools)
    )


def long_conversation(rng: Random, split: Split, rounds: int) -> Conversation:
    """Several rounds with the same tools: most of the training, for it reads each schema once and
    uses it often.
    """
    tools = draw_tools(rng, split, rng.choice((1, 2, 2, 3, 3, 4)))
    turns: list[Turn] = list(_system(rng))
    for _ in range(rounds):
        if rng.random() < 0.28:
            exchange = _without_call(rng, split, tools)
            turns += [
                Turn("user", polish(rng, exchange.question)),
                Turn("assistant", exchange.answer),
            ]
            continue
        question, calls = _call_turns(rng, tools)
        turns += [Turn("user", polish(rng, question)), Turn("assistant", "", calls)]
        if rng.random() < 0.6:
            replies, answer, _ = _results(rng, calls)
            turns += [*replies, Turn("assistant", answer)]
    return Conversation("tool calls", tuple(turns), "", "call", "", tuple(t.spec for t in tools))


__all__ = [
    "Ask",
    "call_conversation",
    "long_conversation",
    "no_call_conversation",
    "polish",
    "result",
    "result_conversation",
]
