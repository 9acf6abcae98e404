"""From a Grammar to the text that llguidance compiles.

Owns the rules around what the request gave: reasoning before it, and markers, which are control
tokens in one vocabulary and plain text in another. Knows the vocabulary only through the
Tokenizer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from llguidance import LLMatcher, LLParserLimits, regex_to_lark
from llguidance.gbnf_to_lark import any_to_lark

from runner.backends.backend import Tokenizer
from runner.engine.schema import MAX_TEXT, check_repeats, read_schema
from runner.engine.schemas.places import has_unique
from runner.engine.schemas.rewrite import kept_apart, rewritten, written_rules
from runner.engine.schemas.rules import needs_rules
from runner.errors import InvalidRequest
from runner.types import Grammar

MAX_GRAMMAR_BYTES = 256 * 1024
MAX_NESTING = 100  # of brackets; the translator of GBNF recurses
MAX_CHOICES = 5_000
MAX_RULES = 1_000  # of GBNF; translating them takes up to a second


def _limits(step_max_items: int) -> LLParserLimits:
    """Of twice the lexer's and less than half the grammar's size that llguidance allows by itself:
    a schema of MAX_PROPERTIES still fits, and building stays within a second."""
    return LLParserLimits(
        initial_lexer_fuel=2_000_000,
        step_max_items=step_max_items,
        max_grammar_size=200_000,
        max_items_in_row=8_000,
        max_lexer_states=50_000,
        verbose_errors=False,
    )


LIMITS = _limits(30_000)  # 3 ms a step where alternatives share many properties
FREE_LIMITS = _limits(2_000)  # of what may be ambiguous: 5 ms a step, where 10,000 items take 40

WHITE_SPACE = r" |\r?\n[ \t]{0,16}"

_HEAD = "%llguidance {}\n"
_INLINE = "%json "
_OPTIONS = "x-guidance"


def llguidance_source(
    grammar: Grammar,
    tokenizer: Tokenizer,
    *,
    opened: bool,
    schema: Any = None,
    is_rewritten: bool = False,
) -> str:
    """What llguidance compiles for a grammar. opened: the prompt has opened the reasoning. schema:
    that of a JSON schema's grammar, or one for the same values, rewritten. Raises InvalidRequest
    for what can be seen to be wrong without compiling."""
    for path, text in grammar.schemas:
        read_schema(text, path)
    if grammar.kind == "json_schema":
        body = _schema_body(schema, grammar.param or "schema", is_rewritten=is_rewritten)
    else:
        body = _body(grammar, tokenizer)
    if grammar.reasoning is None:
        return json.dumps({"grammars": [body]})
    before = _before(grammar.reasoning, grammar.head, tokenizer, opened=opened)
    return json.dumps({"grammars": [{"lark_grammar": before}, {"name": "answer", **body}]})


def _body(grammar: Grammar, tokenizer: Tokenizer) -> dict[str, Any]:
    if len(grammar.text) > MAX_GRAMMAR_BYTES and not grammar.schemas:
        raise _invalid(grammar, f"it has more than {MAX_GRAMMAR_BYTES} characters")
    if grammar.kind != "choice":
        check_repeats(grammar.text, grammar.param or "grammar")
    if grammar.kind == "regex":
        return {"lark_grammar": f"start: /{_escaped(grammar.text)}/"}
    if grammar.kind == "choice":
        return {"lark_grammar": "start: " + " | ".join(_choices(grammar))}
    text = _translated(grammar) if grammar.kind == "gbnf" else grammar.text
    rules = [
        _marker_rules(index, marker, tokenizer) for index, marker in enumerate(grammar.markers)
    ]
    return {"lark_grammar": "\n".join([text, *rules])}


def _escaped(pattern: str) -> str:
    return str(regex_to_lark(pattern)).replace("\n", "\\n")


def _choices(grammar: Grammar) -> list[str]:
    try:
        words = json.loads(grammar.text)
    except (ValueError, RecursionError):
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
        raise _invalid(grammar, "choices must be a list of one or more strings")
    if len(words) > MAX_CHOICES:
        raise _invalid(grammar, f"{len(words)} choices; the maximum is {MAX_CHOICES}")
    if any(len(word) > MAX_TEXT for word in words):
        raise _invalid(grammar, f"a choice has more than {MAX_TEXT} characters")
    if "" in words:
        raise _invalid(grammar, "a choice is empty")
    return [_quoted(word) for word in words]


def _translated(grammar: Grammar) -> str:
    """Lark for GBNF; what is Lark already stays as it is."""
    depth = deepest = 0
    for character in grammar.text:
        depth += (character == "(") - (character == ")")
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING:
        raise _invalid(grammar, f"brackets are nested more than {MAX_NESTING} levels deep")
    rules = grammar.text.count("::=")
    if rules > MAX_RULES:
        raise _invalid(grammar, f"it has {rules} rules, at most {MAX_RULES} are allowed")
    try:
        return any_to_lark(grammar.text)
    except Exception as error:
        raise _invalid(grammar, str(error)[:300]) from None


def with_plain_schemas(grammar: Grammar) -> Grammar:
    """The same grammar with each JSON schema in its text rewritten that llguidance does not take.
    Raises InvalidRequest where that cannot be done."""
    places = {text: path for path, text in grammar.schemas}
    found, *parts = grammar.text.split(_INLINE)
    added = []
    for at, part in enumerate(parts):
        schema, end = json.JSONDecoder().raw_decode(part)
        written = part[:end]
        if compile_fault(schema) is not None:
            own = {key: value for key, value in schema.items() if key != _OPTIONS}
            param = places.get(json.dumps(own, ensure_ascii=False), grammar.param or "grammar")
            plain = rewritten(own, param)
            if has_unique(plain):
                raise InvalidRequest(f"{param}: `uniqueItems` is not supported here", param=param)
            options = {_OPTIONS: schema[_OPTIONS]} if _OPTIONS in schema else {}
            written = json.dumps({**plain, **options}, ensure_ascii=False)
            if needs_rules(plain):
                name = f"schema_{at}_rules"
                added.append(written_rules(plain, param, WHITE_SPACE, bounded({}), name))
                found += name + part[end:]
                continue
        found += _INLINE + written + part[end:]
    return replace(grammar, text="\n".join([found, *added]))


def _schema_body(schema: Any, param: str, *, is_rewritten: bool) -> dict[str, Any]:
    if is_rewritten and needs_rules(schema):
        return {"lark_grammar": _HEAD + written_rules(schema, param, WHITE_SPACE, bounded({}))}
    return {"json_schema": bounded(schema)}


def bounded(schema: Any) -> Any:
    """A JSON schema whose texts have a space or a line break with an indent between two values: a
    model may go on with white space for ever."""
    if not isinstance(schema, dict):
        return schema
    return {**schema, _OPTIONS: {"whitespace_pattern": WHITE_SPACE}}


def _before(
    markers: tuple[str, str], head: str | None, tokenizer: Tokenizer, *, opened: bool
) -> str:
    written = [*markers, *([] if head is None else [head])]
    rules = [_marker_rules(index, marker, tokenizer) for index, marker in enumerate(written)]
    if opened:
        thought = "until_1 blanks"
    elif head is None:
        thought = "(marker_0 until_1 blanks)?"
    else:
        thought = "(marker_0 until_1 blanks | marker_2)"
    start = f"start: {thought} @answer"
    return "\n".join([_HEAD, start, r"blanks: /[ \r\n\t]{0,8}/", *rules])


def _marker_rules(index: int, marker: str, tokenizer: Tokenizer) -> str:
    """Lark for a marker itself and for a text that ends with it."""
    parts = _split(marker, tokenizer)
    written = " ".join(f"<[{part}]>" if isinstance(part, int) else _quoted(part) for part in parts)
    if isinstance(parts[0], int):
        return f"marker_{index}: {written}\nuntil_{index}: /(.|\\n)*/ {written}"
    rest = " ".join(f"<[{part}]>" if isinstance(part, int) else _quoted(part) for part in parts[1:])
    first = _escaped(re.escape(parts[0]))
    lazy = f"text_{index}[lazy]: /(.|\\n)*{first}/"
    return f"marker_{index}: {written}\nuntil_{index}: text_{index} {rest}\n{lazy}"


def _split(marker: str, tokenizer: Tokenizer) -> list[int | str]:
    """A marker as control tokens and the text between them; never empty."""
    tokens = tokenizer.encode(marker, add_bos=False, parse_special=True)
    control = {tokenizer.text(token): token for token in tokens if not tokenizer.piece(token)}
    control.pop("", None)
    if not control:
        return [marker]
    border = "|".join(re.escape(text) for text in control)
    return [control.get(part, part) for part in re.split(f"({border})", marker) if part]


def special_token_ids(markers: Sequence[str], tokenizer: Tokenizer) -> set[int]:
    """The control tokens among markers."""
    return {
        part for marker in markers for part in _split(marker, tokenizer) if isinstance(part, int)
    }


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _invalid(grammar: Grammar, reason: str) -> InvalidRequest:
    param = grammar.param or "grammar"
    return InvalidRequest(f"{param}: {reason}", param=param)


def schema_fault(schema: Any) -> str | None:
    """What keeps a JSON schema from being enforced, rewritten too; None: nothing."""
    if compile_fault(schema) is None:
        return None
    try:
        plain, _ = kept_apart(rewritten(schema, ""), "")
        return compile_fault(plain, is_rewritten=True)
    except InvalidRequest as error:
        return error.message.partition(": ")[2]


def compile_fault(schema: Any, *, is_rewritten: bool = False) -> str | None:
    """What llguidance finds wrong with a JSON schema; None: nothing. Raises InvalidRequest for a
    rewritten one that has no rules."""
    source = json.dumps({"grammars": [_schema_body(schema, "", is_rewritten=is_rewritten)]})
    failed, messages = LLMatcher.validate_grammar_with_warnings(source, limits=LIMITS)
    return first_line(messages[0]) if failed else None


def first_line(message: str) -> str:
    """The reason in a message of llguidance, without the drawing of the place."""
    lines = [line.strip() for line in message.splitlines() if line.strip(" ^|")]
    reasons = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (reasons or lines or ["it cannot be compiled"])[0][:300]
