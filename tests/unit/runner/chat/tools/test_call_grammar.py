from __future__ import annotations

import importlib
import itertools
import json
import pkgutil
import random
from dataclasses import replace
from typing import Any

import pytest

from runner.chat import families
from runner.chat.family import Family
from runner.chat.output import tool_parser_of
from runner.chat.tools.call_grammar import (
    grammar_of_begun_call,
    grammar_of_calls,
    offered_function,
)
from runner.engine.grammar import Grammars, LlguidanceMatcher
from runner.errors import InvalidRequest
from runner.types import Grammar, ToolCall
from tests.fake_backend import FakeTokenizer

WEATHER = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 7},
        },
        "required": ["city", "unit"],
    },
}
TIME = {"name": "get_time"}
TOOLS = [{"type": "function", "function": WEATHER}, {"type": "function", "function": TIME}]


def known(family: str) -> Family:
    found: Family = importlib.import_module(f"runner.chat.families.{family}").FAMILY
    return found


FAMILIES = [
    module.name
    for module in pkgutil.iter_modules(families.__path__)
    if known(module.name).call_grammar is not None
]
VARIANTS = [
    *((name, "") for name in FAMILIES),
    *((name, text) for name in FAMILIES for text, _ in known(name).call_grammar_variants),
]
END = 257
PREFERRED = (*b'<|"}]:0,[', *range(97, 123), *range(32, 127), *range(256))
CLOSERS = b'"</parameter></arg_value>'  # of the values that are texts


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(FakeTokenizer())


def written(matcher: LlguidanceMatcher, seed: int, wander: int = 60) -> str:
    """An answer that the grammar allows: at random first, then to the nearest end."""
    chance = random.Random(seed)
    out, closers = bytearray(), itertools.cycle(CLOSERS)
    while not matcher.complete and len(out) < 2000:
        bits = matcher.bits()
        allowed = [token for token in range(256) if bits[token >> 3] >> (token & 7) & 1]
        ends = bits[END >> 3] >> (END & 7) & 1
        if ends and (not allowed or len(out) >= wander or chance.random() < 0.3):
            break
        if len(out) < wander:
            token = chance.choice(allowed)
        else:
            token = next(each for each in (next(closers), *PREFERRED) if each in allowed)
        out.append(token)
        matcher.accept(token)
    return out.decode()


def calls_in(family: str, text: str) -> list[ToolCall]:
    parser = tool_parser_of(known(family), TOOLS)
    assert parser is not None
    headers = known(family).reasoning_splitter
    if headers is not None:
        text = "".join(part for part in headers(TOOLS).feed(text) if isinstance(part, str))
    parts = [*parser.feed(text), *parser.finish()]
    return [part for part in parts if isinstance(part, ToolCall)]


def is_valid(call: ToolCall) -> bool:
    arguments = json.loads(call.arguments)
    if call.name == "get_time":
        return bool(arguments == {})
    days = arguments.get("days", 1)
    return (
        call.name == "get_weather"
        and {"city", "unit"} <= set(arguments) <= {"city", "unit", "days"}
        and isinstance(arguments["city"], str)
        and arguments["unit"] in ("celsius", "kelvin")
        and isinstance(days, int)
        and 1 <= days <= 7
    )


def of(family: str, template: str = "", **more: Any) -> Grammar:
    offers = [offered_function(each, "tools") for each in (WEATHER, TIME)]
    calls = known(family).call_grammar_for(template)
    assert calls is not None
    return grammar_of_calls(calls, offers, **{"free": False, **more})


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("family", "template"),
    VARIANTS,
)
def test_whatever_the_grammar_allows_is_read_as_valid_calls(
    grammars: Grammars, family: str, template: str, seed: int
) -> None:
    text = written(grammars.matcher(of(family, template, max_calls=1)), seed)
    calls = calls_in(family, text)
    assert len(calls) == 1, text
    assert is_valid(calls[0]), text


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "harmony"])
def test_several_calls_are_read_one_by_one(grammars: Grammars, family: str) -> None:
    several = grammars.matcher(of(family, max_calls=2))
    texts = [written(grammars.matcher(of(family, max_calls=2)), seed, 400) for seed in range(6)]
    assert not several.complete
    for text in texts:
        calls = calls_in(family, text)
        assert 1 <= len(calls) <= 2, text
        assert all(map(is_valid, calls)), text


def accepts(matcher: LlguidanceMatcher, text: str) -> int:
    """How many bytes of text the grammar allows."""
    for count, byte in enumerate(text.encode()):
        if not matcher.bits()[byte >> 3] >> (byte & 7) & 1:
            return count
        matcher.accept(byte)
    return len(text.encode())


def test_text_is_free_until_a_call_begins(grammars: Grammars) -> None:
    grammar = of("hermes", free=True)
    call = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
    good = f"Let me see <b>: {call}"
    assert accepts(grammars.matcher(grammar), good) == len(good)
    assert accepts(grammars.matcher(grammar), "no call at all {}") == len("no call at all {}")
    bad = 'I call <tool_call>\n{"name": "get_tune"'
    assert accepts(grammars.matcher(grammar), bad) == bad.index("une")


def test_a_bare_object_is_a_call_and_other_text_is_free(grammars: Grammars) -> None:
    grammar = of("llama3", free=True)
    assert accepts(grammars.matcher(grammar), "Hello {there}") == len("Hello {there}")
    assert accepts(grammars.matcher(grammar), '{"name": "get_t?') == len('{"name": "get_t')


def test_an_answer_beside_calls_matches_its_own_schema(grammars: Grammars) -> None:
    grammar = of("hermes", answer='%json {"const": 12}')
    assert accepts(grammars.matcher(grammar), "123") == 2
    assert accepts(grammars.matcher(grammar), "<tool_call>{") == len("<tool_call>{")


def test_functions_that_are_not_strict_take_any_object() -> None:
    assert offered_function(WEATHER, "tools.0.function", strict=False).schema == {"type": "object"}


@pytest.mark.parametrize(
    ("kind", "words", "kept"),
    [
        ("integer", ["1", "2"], False),
        ("integer", [True], False),
        ("boolean", ["True", "dontcare"], False),
        ("array", ["a", "b"], False),
        ("integer", ["1", 2], True),
        ("boolean", [True], True),
        ("number", [1, 2.5], True),
        (["integer", "null"], ["1"], True),
    ],
)
def test_words_of_which_none_has_the_type_are_left_out_unless_strict(
    kind: Any, words: list[Any], kept: bool
) -> None:
    inner = {"type": kind, "enum": words}
    listed = {"type": "array", "items": {"type": "object", "properties": {"deep": inner}}}
    parameters = {"type": "object", "properties": {"a": inner, "b": listed}}
    function = {"name": "f", "parameters": parameters}
    found = offered_function(function, "tools").schema["properties"]
    expected = inner if kept else {"type": kind}
    assert found["a"] == expected
    assert found["b"]["items"]["properties"]["deep"] == expected
    strict = offered_function({**function, "strict": True}, "tools").schema
    assert strict["properties"] == parameters["properties"]


def test_unlisted_arguments_are_left_out_unless_the_schema_wants_them() -> None:
    open_ended = {"name": "f", "parameters": {"type": "object", "additionalProperties": True}}
    assert offered_function(WEATHER, "tools").schema["additionalProperties"] is False
    assert offered_function(open_ended, "tools").schema["additionalProperties"] is True


@pytest.mark.parametrize(
    ("arguments", "valid"),
    [
        ('{"a": "x", "n": 3}', True),
        ('{"a": "\\u00ce\\ud83d\\ude00 Î"}', True),
        ('{"a": "x", "l": ["y", "z"]}', True),
        ('{"n": 3}', False),
        ("{}", False),
        ('{"a": "x", "b": 1}', False),
        ('{"a": "x", "n": "3"}', False),
    ],
)
def test_a_begun_call_has_what_its_schema_requires(arguments: str, valid: bool) -> None:
    properties = {"a": {"type": "string"}, "n": {"type": "integer"},
                  "l": {"type": "array", "items": {"type": "string"}}}  # fmt: skip
    schema = {"type": "object", "properties": properties, "required": ["a"]}
    offer = offered_function({"name": "f", "parameters": schema}, "tools.0")
    calls = known("hermes").call_grammar
    assert calls is not None
    grammar = replace(grammar_of_begun_call(calls, [offer]), begins="")
    text = f'so <tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'
    grammars = Grammars(FakeTokenizer())
    matcher = grammars.matcher(grammar)
    try:
        for byte in text.encode():
            matcher.accept(byte)
    except InvalidRequest:
        assert not valid
    else:
        assert valid
        assert matcher.complete
