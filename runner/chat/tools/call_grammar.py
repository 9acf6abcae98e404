"""The tool format of a family as a Lark grammar, so that a call is always well formed and its
arguments match their schema.

Knows no family. Markers are named marker_0, marker_1, ... and until_0, see runner.types.Grammar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from runner.chat.tools.argument_grammar import (
    OfferedFunction,
    as_json,
    as_usual_json,
    lark_text,
)
from runner.chat.tools.calls import ARGUMENT_KEYS, NAME_KEYS
from runner.errors import Unsupported
from runner.types import Grammar

MAX_CALLS = 16  # in one answer: a model that repeats itself comes to an end

_SPACE = r"blank: /[ \n]{0,4}/"
_WIDE_SPACE = r"blank: /[ \n]{0,4}|\r?\n[ \t]{0,16}/"  # of JSON with an indent, too

# How a call without markers begins: its name and the key of its arguments, as
# runner.chat.tools.unmarked_calls reads them.
_GAP = r"[ \t\r\n]{0,16}"
_NAME = rf'"({"|".join(NAME_KEYS)})"{_GAP}:{_GAP}"'
_GIVEN = rf'"{_GAP},{_GAP}"({"|".join(ARGUMENT_KEYS)})"{_GAP}:'

_TYPES: Final[Mapping[str, Any]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


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
    if function.get("strict") is not True:
        schema = _without_misfits(schema)
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


def _without_misfits(schema: Any) -> Any:
    """schema without an enum of which no value has the type: no value could fit. Programs offer
    such functions, and take the arguments by their types."""
    if not isinstance(schema, Mapping):
        return schema
    found = dict(schema)
    if isinstance(properties := found.get("properties"), Mapping):
        found["properties"] = {name: _without_misfits(each) for name, each in properties.items()}
    if "items" in found:
        found["items"] = _without_misfits(found["items"])
    kind, words = found.get("type"), found.get("enum")
    known = isinstance(kind, str) and kind in _TYPES
    if known and isinstance(words, list) and not any(_is_of(word, kind) for word in words):
        del found["enum"]
    return found


def _is_of(value: Any, kind: Any) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


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
    _check_inputs(calls, offers)
    start = _start(calls, free=free, answer=answer)
    return _of_rules([start, *_calls(calls, offers, max_calls), _SPACE], calls, offers)


def _check_inputs(calls: CallGrammar, offers: Sequence[OfferedFunction]) -> None:
    fixed = next((each.name for each in offers if each.lark is not None), None)
    if fixed is not None and calls.arguments is not as_json:
        raise Unsupported(
            f"{fixed}: this model writes no JSON, in which the grammar of a tool's input is "
            "enforced; leave format out",
            param="tools",
        )


def grammar_of_begun_call(calls: CallGrammar, offers: Sequence[OfferedFunction]) -> Grammar:
    """What follows where a call begins. After the first marker: one call where each has that
    marker, else all of them. Where they are JSON, after a name and the key of the arguments, the
    arguments: models write calls without their markers, too. Raises Unsupported."""
    is_json = calls.arguments is as_json
    starts, begins, rules = [], [], [_WIDE_SPACE]
    if is_json:
        calls = replace(calls, arguments=as_usual_json)
        starts.append("bare")
        begins.append(_NAME + f"({'|'.join(re.escape(_inside(each)) for each in offers)})" + _GIVEN)
        bare = (f"{lark_text(_inside(each))} given arguments_{n}" for n, each in enumerate(offers))
        rules += [f"bare: named ({' | '.join(bare)})", f"given: /{_GIVEN}{_GAP}/"]
        rules.append(f"named[lazy]: /(.|\\n)*{_NAME}/")
    if calls.markers:
        starts.append("until_0 rest")
        begins.append(re.escape(calls.markers[0]))
    _check_inputs(calls, offers)
    if not starts:
        raise Unsupported("nothing tells where a call begins", param="tools")
    max_calls = 1 if calls.repeated else MAX_CALLS
    rules += [f"start: {' | '.join(starts)}", *_calls(calls, offers, max_calls)]
    return replace(_of_rules(rules, calls, offers), begins="|".join(begins))


def _inside(each: OfferedFunction) -> str:
    """The name of a function as it stands between the quotes of JSON."""
    return json.dumps(each.name)[1:-1]


def _of_rules(
    rules: Sequence[str], calls: CallGrammar, offers: Sequence[OfferedFunction]
) -> Grammar:
    schemas = tuple((each.path, json.dumps(each.schema, ensure_ascii=False)) for each in offers)
    return Grammar("lark", "\n".join(rules), "tools", markers=calls.markers, schemas=schemas)


def _calls(calls: CallGrammar, offers: Sequence[OfferedFunction], max_calls: int) -> list[str]:
    """The rules of one to max_calls calls, rest, and of their arguments, arguments_0 and so on."""
    each = "marker_0 call" if calls.repeated and calls.markers else "call"
    count = 1 if calls.single else max_calls
    more = f"({calls.between} {each}){{0,{count - 1}}}" if count > 1 else ""
    names = " | ".join(f"call_{number}" for number in range(len(offers)))
    rules = [f"rest: {calls.begin} call {more} {calls.end}", f"call: {names}"]
    for number, offer in enumerate(offers):
        rules.append(f"call_{number}: {calls.call(offer, f'arguments_{number}')}")
        rules.append(calls.arguments(offer, f"arguments_{number}"))
    return rules


def _start(calls: CallGrammar, *, free: bool, answer: str | None) -> str:
    whole = f"calls: {'marker_0' if calls.markers else ''} rest"
    if answer is not None:
        return f"start: calls | answer\nanswer: {answer}\n{whole}"
    if not free:
        return f"start: calls\n{whole}"
    if not calls.markers:
        return f"start: calls | text\ntext: /([^\\{calls.opens}\\s](.|\\n)*)?/\n{whole}"
    return "start: (until_0 rest)? tail\ntail: /(.|\\n)*/"


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
