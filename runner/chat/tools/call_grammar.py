"""The tool format of a family as a Lark grammar, so that a call is always well formed and its
arguments match their schema.

Knows no family. Markers are named marker_0, marker_1, ... and until_0, see runner.types.Grammar.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from runner.chat.tools.argument_grammar import (
    OfferedFunction,
    as_json,
    as_usual_json,
    lark_text,
)
from runner.errors import Unsupported
from runner.types import Grammar

MAX_CALLS = 16  # in one answer: a model that repeats itself comes to an end

_SPACE = r"blank: /[ \n]{0,4}/"


@dataclass(frozen=True, slots=True)
class CallGrammar:
    """How a family writes calls. markers[0] begins them; None: nothing does, a call is the whole
    answer and begins with a brace. call: Lark of one call, by the name of a rule for its
    arguments. begin: Lark after the first marker and before the calls, end: after them."""

    markers: tuple[str, ...]
    call: Callable[[OfferedFunction, str], str]
    arguments: Callable[[OfferedFunction, str], str]
    begin: str = ""
    between: str = "blank"
    end: str = ""
    repeated: bool = False  # the first marker stands before each call
    single: bool = False  # an answer has one call
    opens: str = "{"  # what free text may not begin with, where there are no markers


def offered_function(
    function: Mapping[str, Any], path: str, *, strict: bool = True
) -> OfferedFunction:
    """A function of the request. strict False: any object will do for its arguments."""
    given = function.get("parameters")
    schema = dict(given) if isinstance(given, Mapping) else {}
    if not strict:
        schema = {"type": "object"}
    elif not schema or _closes(schema):
        schema = {"type": "object", **schema, "additionalProperties": False}
    lark = function.get("lark")
    inside = lark if isinstance(lark, str) else None
    return OfferedFunction(str(function["name"]), schema, f"{path}.parameters", inside)


def _closes(schema: Mapping[str, Any]) -> bool:
    """Whether names that the schema does not list are nothing the function knows."""
    others = ("additionalProperties", "patternProperties", "anyOf", "oneOf", "allOf", "$ref")
    return "properties" in schema and not any(name in schema for name in others)


def grammar_of_calls(
    calls: CallGrammar,
    offers: Sequence[OfferedFunction],
    *,
    free: bool,
    max_calls: int = MAX_CALLS,
    answer: str | None = None,
) -> Grammar:
    """The grammar of an answer of one to max_calls calls. free: they may be left out, and stand in
    any text. answer: what the text must be when there are no calls, as Lark."""
    fixed = next((each.name for each in offers if each.lark is not None), None)
    if fixed is not None and calls.arguments is not as_json:
        raise Unsupported(
            f"{fixed}: this model writes no JSON, in which the grammar of a tool's input is "
            "enforced; leave format out",
            param="tools",
        )
    max_calls = 1 if calls.single else max_calls
    rules = [_start(calls, free=free, max_calls=max_calls, answer=answer), _SPACE]
    rules += [f"call: {' | '.join(f'call_{number}' for number in range(len(offers)))}"]
    for number, each in enumerate(offers):
        rules.append(f"call_{number}: {calls.call(each, f'arguments_{number}')}")
        rules.append(calls.arguments(each, f"arguments_{number}"))
    schemas = tuple((each.path, json.dumps(each.schema, ensure_ascii=False)) for each in offers)
    return Grammar("lark", "\n".join(rules), "tools", markers=calls.markers, schemas=schemas)


def grammar_of_begun_call(calls: CallGrammar, offers: Sequence[OfferedFunction]) -> Grammar:
    """The lazy grammar of what follows the first marker: one call where each has that marker, else
    all of them. Raises Unsupported."""
    arguments = as_usual_json if calls.arguments is as_json else calls.arguments
    calls = replace(calls, arguments=arguments, single=calls.single or calls.repeated)
    whole = grammar_of_calls(calls, offers, free=True)
    _, _, rest = whole.text.partition("\n")
    _, _, rest = rest.partition("\n")
    return replace(whole, text=f"start: until_0 rest\n{rest}", lazy=True)


def _start(calls: CallGrammar, *, free: bool, max_calls: int, answer: str | None) -> str:
    marker = "marker_0" if calls.markers else ""
    each = f"{marker} call" if calls.repeated else "call"
    more = f"({calls.between} {each}){{0,{max_calls - 1}}}" if max_calls > 1 else ""
    rest = f"{calls.begin} call {more} {calls.end}".strip()
    rules = f"calls: {marker} rest\nrest: {rest}"
    if answer is not None:
        return f"start: calls | answer\nanswer: {answer}\n{rules}"
    if not free:
        return f"start: calls\n{rules}"
    if not calls.markers:
        return f"start: calls | text\ntext: /([^\\{calls.opens}\\s](.|\\n)*)?/\n{rules}"
    return f"start: (until_0 rest)? tail\ntail: /(.|\\n)*/\nrest: {rest}"


def json_call(name: str, arguments: str, before: str = "") -> Callable[[OfferedFunction, str], str]:
    """A call as a JSON object with these keys."""

    def call(each: OfferedFunction, rule: str) -> str:
        named = f"{lark_text(json.dumps(name) + ':')} blank {lark_text(json.dumps(each.name))}"
        given = f"{lark_text(json.dumps(arguments) + ':')} blank {rule}"
        return f'"{{" blank {before} {named} "," blank {given} blank "}}"'

    return call


NAMED_CALL: Final = json_call("name", "arguments")


def python_call(each: OfferedFunction, rule: str) -> str:
    """A call as Python."""
    return f'{lark_text(each.name + "(")} {rule} ")"'
