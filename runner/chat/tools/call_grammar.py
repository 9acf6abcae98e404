"""Each family's notation of calls as a Lark grammar, so that a call is always well formed and its
arguments match their schema.

Owns how calls are written; the parsers beside it own how they are read. Marks are named by
mark_0, mark_1, ... and until_0, see runner.types.Grammar.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.chat.tools.argument_grammar import (
    OfferedFunction,
    as_json,
    bare_values,
    braced_values,
    keyword_values,
    lark_text,
)
from runner.errors import Unsupported
from runner.types import Grammar

MAX_CALLS = 16  # in one answer: a model that repeats itself comes to an end

_SPACE = r"blank: /[ \n]{0,4}/"


@dataclass(frozen=True, slots=True)
class CallGrammar:
    """How a family writes calls. marks[0] begins them; None: nothing does, a call is the whole
    answer and begins with a brace. call: Lark of one call, by the name of a rule for its
    arguments. begin: Lark after the first mark and before the calls, end: after them."""

    marks: tuple[str, ...]
    call: Callable[[OfferedFunction, str], str]
    arguments: Callable[[OfferedFunction, str], str]
    begin: str = ""
    between: str = "blank"
    end: str = ""
    repeated: bool = False  # the first mark stands before each call
    single: bool = False  # an answer has one call
    opens: str = "{"  # what free text may not begin with, where there are no marks


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
    notation: CallGrammar,
    offers: Sequence[OfferedFunction],
    *,
    free: bool,
    most: int = MAX_CALLS,
    answer: str | None = None,
) -> Grammar:
    """The grammar of an answer of one to most calls. free: they may be left out, and stand in
    any text. answer: what the text must be when there are no calls, as Lark."""
    fixed = next((each.name for each in offers if each.lark is not None), None)
    if fixed is not None and notation.arguments is not as_json:
        raise Unsupported(
            f"{fixed}: this model writes no JSON, in which the grammar of a tool's input is "
            "enforced; leave format out",
            param="tools",
        )
    most = 1 if notation.single else most
    rules = [_start(notation, free=free, most=most, answer=answer), _SPACE]
    rules += [f"call: {' | '.join(f'call_{number}' for number in range(len(offers)))}"]
    for number, each in enumerate(offers):
        rules.append(f"call_{number}: {notation.call(each, f'arguments_{number}')}")
        rules.append(notation.arguments(each, f"arguments_{number}"))
    schemas = tuple((each.path, json.dumps(each.schema, ensure_ascii=False)) for each in offers)
    return Grammar("lark", "\n".join(rules), "tools", marks=notation.marks, schemas=schemas)


def _start(notation: CallGrammar, *, free: bool, most: int, answer: str | None) -> str:
    mark = "mark_0" if notation.marks else ""
    each = f"{mark} call" if notation.repeated else "call"
    more = f"({notation.between} {each}){{0,{most - 1}}}" if most > 1 else ""
    rest = f"{notation.begin} call {more} {notation.end}".strip()
    calls = f"calls: {mark} rest\nrest: {rest}"
    if answer is not None:
        return f"start: calls | answer\nanswer: {answer}\n{calls}"
    if not free:
        return f"start: calls\n{calls}"
    if not notation.marks:
        first = notation.opens
        return f"start: calls | text\ntext: /([^\\{first}\\s](.|\\n)*)?/\n{calls}"
    return f"start: (until_0 rest)? tail\ntail: /(.|\\n)*/\nrest: {rest}"


def _object(name: str, arguments: str, before: str = "") -> Callable[[OfferedFunction, str], str]:
    """A call as a JSON object with these keys."""

    def call(each: OfferedFunction, rule: str) -> str:
        named = f"{lark_text(json.dumps(name) + ':')} blank {lark_text(json.dumps(each.name))}"
        given = f"{lark_text(json.dumps(arguments) + ':')} blank {rule}"
        return f'"{{" blank {before} {named} "," blank {given} blank "}}"'

    return call


_NAMED = _object("name", "arguments")

_CALL_NUMBER = r'("\"tool_call_id\":" blank "\"" /[0-9]{1,3}/ "\"," blank)?'

_HERMES = CallGrammar(
    ("<tool_call>", "</tool_call>"),
    lambda each, rule: f"blank {_NAMED(each, rule)} blank mark_1",
    as_json,
    repeated=True,
)
_LIST = CallGrammar(("[TOOL_CALLS]",), _NAMED, as_json, begin='"["', between='"," blank', end='"]"')
_MISTRAL = CallGrammar(
    ("[TOOL_CALLS]", "[ARGS]"),
    lambda each, rule: f"{lark_text(each.name)} mark_1 {rule}",
    as_json,
    between="",
    repeated=True,
)
_GRANITE = CallGrammar(
    ("<|tool_call|>",), _NAMED, as_json, begin='blank "["', between='"," blank', end='"]"'
)
_COHERE = CallGrammar(
    ("<|START_ACTION|>", "<|END_ACTION|>"),
    _object("tool_name", "parameters", _CALL_NUMBER),
    as_json,
    begin='blank "[" blank',
    between='"," blank',
    end='blank "]" blank mark_1',
)
_DEEPSEEK_MARKS = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
                   "<｜tool▁call▁end｜>", "<｜tool▁sep｜>")  # fmt: skip
_DEEPSEEK_R1 = CallGrammar(
    _DEEPSEEK_MARKS,
    lambda each, rule: (
        f'mark_2 "function" mark_4 {lark_text(each.name)} "\\n```json\\n" {rule} "\\n```" mark_3'
    ),
    as_json,
    end="mark_1",
)
_DEEPSEEK = CallGrammar(
    _DEEPSEEK_MARKS,
    lambda each, rule: f"mark_2 {lark_text(each.name)} mark_4 {rule} mark_3",
    as_json,
    between="",
    end="mark_1",
)
_KIMI = CallGrammar(
    ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
     "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    lambda each, rule: (
        f"mark_2 {lark_text(f'functions.{each.name}:')} /[0-9]{{1,3}}/ mark_3 {rule} mark_4"
    ),
    as_json,
    between="",
    end="mark_1",
)  # fmt: skip
_QWEN3_CODER = CallGrammar(
    ("<tool_call>", "</tool_call>"),
    lambda each, rule: (
        f'"\\n" {lark_text(f"<function={each.name}>")} "\\n" {rule} "</function>\\n" mark_1'
    ),
    bare_values("<parameter=", ">\n", "\n</parameter>\n"),
    repeated=True,
)
_GLM = CallGrammar(
    ("<tool_call>", "</tool_call>"),
    lambda each, rule: f'{lark_text(each.name)} "\\n" {rule} mark_1',
    bare_values("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
    repeated=True,
)
_LLAMA3 = CallGrammar((), _object("name", "parameters"), as_json, between='";" blank')
_PLAIN = CallGrammar((), _NAMED, as_json, single=True)
_HARMONY = CallGrammar(
    ("<|channel|>", "<|message|>", "<|constrain|>"),
    lambda each, rule: (
        f'"commentary to=functions." {lark_text(each.name)} " " mark_2 "json" mark_1 {rule}'
    ),
    as_json,
    single=True,
)


def _python(each: OfferedFunction, rule: str) -> str:
    """A call as Python."""
    return f'{lark_text(each.name + "(")} {rule} ")"'


_PYTHONIC = CallGrammar(
    (), _python, keyword_values, begin='"["', between='", "', end='"]"', opens="["
)
_GEMMA = CallGrammar(
    ("```tool_code",), _python, keyword_values, begin='"\\n"', between='"\\n"', end='"\\n```"'
)
_OLMO3 = CallGrammar(
    ("<function_calls>", "</function_calls>"),
    _python,
    keyword_values,
    between='"\\n"',
    end="mark_1",
)
_LFM2 = CallGrammar(
    ("<|tool_call_start|>", "<|tool_call_end|>"),
    _python,
    keyword_values,
    begin='"["',
    between='", "',
    end='"]" mark_1',
)
_FUNCTIONGEMMA = CallGrammar(
    ("<start_function_call>", "<end_function_call>", "<escape>"),
    lambda each, rule: f'{lark_text(f"call:{each.name}{{")} {rule} "}}" mark_1',
    braced_values("mark_2"),
    between="",
    repeated=True,
)
_GEMMA4 = CallGrammar(
    ("<|tool_call>", "<tool_call|>", '<|"|>'),
    lambda each, rule: f'{lark_text(f"call:{each.name}{{")} {rule} "}}" mark_1',
    braced_values("mark_2"),
    between="",
    repeated=True,
)
_MINIMAX = CallGrammar(
    ("<minimax:tool_call>", "</minimax:tool_call>"),
    lambda each, rule: (
        f'"\\n" {lark_text(f"""<invoke name="{each.name}">""")} "\\n" {rule} "</invoke>"'
    ),
    bare_values('<parameter name="', '">', "</parameter>\n"),
    between="",
    end='"\\n" mark_1',
)

_OF_FAMILY = {
    "hermes": _HERMES,
    "mistral": _LIST,
    "granite": _GRANITE,
    "cohere": _COHERE,
    "deepseek": _DEEPSEEK,
    "kimi": _KIMI,
    "qwen3_coder": _QWEN3_CODER,
    "glm": _GLM,
    "llama3": _LLAMA3,
    "plain_json": _PLAIN,
    "harmony": _HARMONY,
    "pythonic": _PYTHONIC,
    "gemma": _GEMMA,
    "olmo3": _OLMO3,
    "lfm2": _LFM2,
    "functiongemma": _FUNCTIONGEMMA,
    "gemma4": _GEMMA4,
    "minimax": _MINIMAX,
}


def call_grammar_of(family: str, chat_template: str | None) -> CallGrammar | None:
    """How a family, by the name of its module, writes calls; None: unknown. The template tells
    apart what one family has written at different times."""
    template = chat_template or ""
    if family == "mistral" and "[ARGS]" in template:
        return _MISTRAL
    if family == "deepseek" and "```json" in template:
        return _DEEPSEEK_R1
    if family == "minimax" and "DSML" in template:
        return None
    return _OF_FAMILY.get(family)
