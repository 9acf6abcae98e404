"""A grammar that counts from where a call begins."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.backends.echo import EchoTokenizer
from runner.chat.tools.argument_grammar import as_json
from runner.chat.tools.call_grammar import (
    NAMED_CALL,
    CallGrammar,
    grammar_of_begun_call,
    offered_function,
)
from runner.engine.call_watch import CallWatch, WatchedCalls
from runner.engine.grammar import Grammars
from runner.types import Grammar

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
CALLS = CallGrammar(
    ("<call>", "</call>"),
    lambda each, rule: f"blank {NAMED_CALL(each, rule)} blank marker_1",
    as_json,
    repeated=True,
)
OFFER = offered_function({"name": "look", "parameters": SCHEMA}, "tools.0")
GRAMMAR = grammar_of_begun_call(CALLS, [OFFER])
CALL = '<call>{"name": "look", "arguments": {"city": "Rome"}}</call>'


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(EchoTokenizer())


def follow(watch: CallWatch, text: str) -> list[bool]:
    """Whether each byte of text is followed by tokens that a grammar decides."""
    return [watch.follow(byte, bytes([byte])) is not None for byte in text.encode()]


def allowed(watch: CallWatch, text: str) -> set[str]:
    """What may follow text."""
    matcher = None
    for byte in text.encode():
        matcher = watch.follow(byte, bytes([byte]))
    assert matcher is not None
    bits = matcher.bits()
    return {chr(token) for token in range(256) if bits[token >> 3] >> (token & 7) & 1}


def test_text_is_free_and_a_call_is_not(grammars: Grammars) -> None:
    text = f"I look: {CALL} and {CALL} so."
    held = follow(grammars.watch(GRAMMAR), text)
    inside = [at for at, is_held in enumerate(held) if is_held]
    first, second = text.index(CALL), text.rindex(CALL)
    end = len(CALL) - 1
    opening = len("<call>") - 1
    assert inside == [
        *range(first + opening, first + end),
        *range(second + opening, second + end),
    ]


BARE = '{"name": "look", "arguments": {"city": "Rome"}}'


@pytest.mark.parametrize(
    ("before", "gap"),
    [("I look:\n```json\n", "\n    "), ("[", ""), ('{"type": "function", "function": ', " ")],
)
def test_the_arguments_of_a_call_without_its_marker_are_held(
    grammars: Grammars, before: str, gap: str
) -> None:
    text = f"{before}{BARE.replace('{', '{' + gap)} and {BARE}"
    held = follow(grammars.watch(GRAMMAR), text)
    begins = text.index(":", text.index('"arguments"'))
    ends = text.index("}")
    assert all(held[begins:ends])
    assert not any([*held[:begins], *held[ends : text.index(" and ")]])
    assert held.count(True) > ends - begins


@pytest.mark.parametrize("named", ['"name": "other", "arguments"', '"name": "look", "city"'])
def test_other_objects_are_free(grammars: Grammars, named: str) -> None:
    assert not any(follow(grammars.watch(GRAMMAR), f'{{{named}: {{"a": 1}}}}'))


def test_a_call_without_its_marker_has_what_the_schema_requires(grammars: Grammars) -> None:
    begun = BARE.partition('"city"')[0]
    assert "}" not in allowed(grammars.watch(GRAMMAR), begun)
    assert '"' in allowed(grammars.watch(GRAMMAR), begun)
    assert allowed(grammars.watch(GRAMMAR), begun + '"city":') == {" ", "\n", "\r", '"'}


def test_required_arguments_cannot_be_left_out(grammars: Grammars) -> None:
    assert "}" not in allowed(grammars.watch(GRAMMAR), '<call>{"name": "look", "arguments": {')
    begun = '<call>{"name": "look", "arguments": {"city": "Rome"'
    assert allowed(grammars.watch(GRAMMAR), begun) >= {"}"}
    assert "," not in allowed(grammars.watch(GRAMMAR), begun)


@pytest.mark.parametrize("text", ["The `<call>` tag", "it says '<call>' and", "a <cal l> b"])
def test_a_marker_that_is_quoted_begins_no_call(grammars: Grammars, text: str) -> None:
    assert not any(follow(grammars.watch(GRAMMAR), text))


def test_reasoning_is_free(grammars: Grammars) -> None:
    thinks = Grammar(**{**fields(GRAMMAR), "reasoning": ("<think>", "</think>")})
    thought = "<think>perhaps <call> it</think>"
    assert not any(follow(grammars.watch(thinks), thought))
    assert any(follow(grammars.watch(thinks), thought + CALL))
    assert not any(follow(grammars.watch(thinks, opened=True), thought.removeprefix("<think>")))
    assert any(follow(grammars.watch(thinks, opened=True), "so</think>" + CALL))


def test_what_the_grammar_does_not_allow_is_free_again(grammars: Grammars) -> None:
    watch = grammars.watch(GRAMMAR)
    assert follow(watch, '<call>{"name": "other"')[-1] is False
    assert any(follow(watch, f" {CALL}"))


def test_a_marker_may_stand_in_the_middle_of_tokens() -> None:
    accepted: list[int] = []

    class Matcher:
        complete = False

        def accept(self, token: int) -> None:
            accepted.append(token)

        def bits(self) -> bytes:
            return b""

    watch = CallWatch(Matcher, "<call>")
    pieces = [b"so ", b"x<", b"ca", b"ll>{", b'"name"']
    held = [watch.follow(token, piece) is not None for token, piece in enumerate(pieces)]
    assert held == [False, False, False, True, True]
    assert accepted == [1, 2, 3, 4]


def fields(grammar: Grammar) -> dict[str, Any]:
    return {name: getattr(grammar, name) for name in Grammar.__dataclass_fields__}


def test_a_lazy_grammar_travels_as_one(grammars: Grammars) -> None:
    assert GRAMMAR.begins
    assert json.loads(GRAMMAR.schemas[0][1])["additionalProperties"] is False


def test_beside_another_mask_a_watch_is_a_matcher(grammars: Grammars) -> None:
    matcher = WatchedCalls(grammars.watch(GRAMMAR), lambda token: bytes([token]), 257)
    assert matcher.bits() == b"\xff" * 36
    for byte in b'<call>{"name": "look", "arguments": {':
        matcher.accept(byte)
    bits = matcher.bits()
    assert not bits[ord("}") >> 3] >> (ord("}") & 7) & 1
    assert bits[ord('"') >> 3] >> (ord('"') & 7) & 1
