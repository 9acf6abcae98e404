from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLParserLimits

from runner.backends.backend import Capacity
from runner.engine.engine import Engine
from runner.engine.grammar import MAX_CACHED_GRAMMARS, Grammars, LlguidanceMatcher
from runner.errors import InvalidRequest
from runner.types import Delta, GenerateRequest, Grammar
from tests.fake_backend import VOCABULARY, FakeBackend, FakeTokenizer
from tests.properties import examples

TOKENIZER = FakeTokenizer()
END = 257
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(TOKENIZER)


def schema(value: Any, **more: Any) -> Grammar:
    return Grammar("json_schema", json.dumps(value), **more)


def allows(matcher: LlguidanceMatcher, token: int) -> bool:
    return bool(matcher.bits()[token >> 3] >> (token & 7) & 1)


def accepted(matcher: LlguidanceMatcher, text: str) -> str:
    """The beginning of text that the grammar allows."""
    for count, byte in enumerate(text.encode()):
        if matcher.complete or not allows(matcher, byte):
            return text.encode()[:count].decode(errors="ignore")
        matcher.accept(byte)
    return text


@pytest.mark.parametrize(
    ("grammar", "whole", "broken", "at"),
    [
        (schema(PERSON), '{"name": "Al", "age": 3}', '{"name": "Al", "size"', 16),
        (schema({"$defs": {"a": {"const": 1}}, "$ref": "#/$defs/a"}), "1", "2", 0),
        (schema({"anyOf": [{"const": "a"}, {"const": "b"}]}), '"b"', '"c"', 1),
        (schema({"type": "string", "pattern": "^a+$"}), '"aa"', '"ab"', 2),
        (schema({"type": "string", "maxLength": 2}), '"ab"', '"abc"', 3),
        (schema({"type": "array", "maxItems": 1, "items": {"const": 1}}), "[1]", "[1,", 2),
        (Grammar("regex", "[ab]{2}/c"), "ab/c", "ac", 1),
        (Grammar("choice", '["yes", "y\\"es", "né"]'), "né", "yo", 1),
        (Grammar("lark", 'start: "a" b\nb: "c"'), "ac", "ab", 1),
        (Grammar("gbnf", 'root ::= "a" b-c\nb-c ::= [0-9] | "x"'), "a7", "ab", 1),
    ],
)
def test_a_matching_answer_is_allowed_and_complete_and_another_is_not(
    grammars: Grammars, grammar: Grammar, whole: str, broken: str, at: int
) -> None:
    matcher = grammars.matcher(grammar)
    assert accepted(matcher, whole) == whole
    assert matcher.complete or allows(matcher, END)
    assert accepted(grammars.matcher(grammar), broken) == broken[:at]


def test_the_end_is_allowed_only_where_the_answer_may_end(grammars: Grammars) -> None:
    matcher = grammars.matcher(Grammar("regex", "ab?"))
    assert not allows(matcher, END)
    matcher.accept(ord("a"))
    assert allows(matcher, END)
    assert not matcher.complete
    matcher.accept(ord("b"))
    assert matcher.complete


def test_control_tokens_are_never_allowed_as_text(grammars: Grammars) -> None:
    matcher = grammars.matcher(schema({"type": "string"}))
    matcher.accept(ord('"'))
    assert not any(allows(matcher, token) for token in range(256, VOCABULARY))


def test_a_token_that_is_not_allowed_is_an_error_for_the_request(grammars: Grammars) -> None:
    matcher = grammars.matcher(Grammar("regex", "a", param="guided_regex"))
    with pytest.raises(InvalidRequest, match="guided_regex: the grammar allows no continuation"):
        matcher.accept(ord("b"))


def test_reasoning_may_come_first_and_must_where_the_prompt_opened_it(grammars: Grammars) -> None:
    grammar = schema({"const": 12}, reasoning=("<think>", "</think>"))
    text = "<think>is {it} </thin 7?</think>\n\n12"
    assert accepted(grammars.matcher(grammar), text) == text
    assert accepted(grammars.matcher(grammar), "12") == "12"
    opened = grammars.matcher(grammar, opened=True)
    assert accepted(opened, "13 hm</think>12") == "13 hm</think>12"


def test_reasoning_between_control_tokens_is_told_from_text(grammars: Grammars) -> None:
    start, end = 258, 259
    grammar = schema({"const": 12}, reasoning=("<|im_start|>", "<|slow|>"))
    matcher = grammars.matcher(grammar)
    assert allows(matcher, start)
    matcher.accept(start)
    assert accepted(matcher, "hm <|slow|> 5") == "hm <|slow|> 5"
    assert not allows(matcher, end)
    matcher.accept(263)
    assert accepted(matcher, "12") == "12"


def test_a_head_stands_before_an_answer_without_reasoning(grammars: Grammars) -> None:
    grammar = schema({"const": 1}, reasoning=("[T]", "[/T][A]"), head="[A]")
    assert accepted(grammars.matcher(grammar), "[A]1") == "[A]1"
    assert accepted(grammars.matcher(grammar), "[T]x[/T][A]1") == "[T]x[/T][A]1"
    assert accepted(grammars.matcher(grammar), "1") == ""


def test_white_space_between_values_comes_to_an_end(grammars: Grammars) -> None:
    matcher = grammars.matcher(schema(PERSON))
    assert len(accepted(matcher, "{" + " " * 200)) == 2


@pytest.mark.parametrize(
    ("grammar", "told"),
    [
        (
            schema({"properties": {"a": {"multipleOf": 1e-300}, "b": {"not": {}}}}, param="p"),
            r"p\.properties\.a: .*multipleOf",
        ),
        (schema({"items": {"pattern": "(["}}, param="p"), "p.items: unclosed"),
        (schema({"$ref": "#/$defs/x"}, param="p"), r"p: `\$ref`: there is no /\$defs/x"),
        (schema({"$ref": "#"}, param="p"), r"p: `\$ref` leads to itself"),
        (Grammar("regex", "([", param="p"), "p: unclosed"),
        (Grammar("lark", "start: x", param="p"), "p: .*unknown name"),
        (Grammar("gbnf", "root ::= x", param="p"), "p: Rule 'x' not found"),
        (Grammar("gbnf", "root ::= " + "(" * 500, param="p"), "p: brackets are nested"),
        (Grammar("regex", "a{100000000}", param="p"), "p: .* repeats more than"),
        (Grammar("regex", "a{9000000001,}", param="p"), "p: .* repeats more than"),
        (Grammar("gbnf", 'root ::= "a"{1,99999}', param="p"), "p: .* repeats more than"),
        (schema({"pattern": "é{20000,}"}, param="p"), "p: .* repeats more than"),
        (Grammar("choice", "[]", param="p"), "p: choices"),
        (Grammar("choice", '["a", 3]', param="p"), "p: choices"),
        (Grammar("choice", json.dumps(["a"] * 6000), param="p"), "p: 6000 choices"),
        (Grammar("regex", "a" * 300_000, param="p"), "p: it has more than"),
    ],
)
def test_a_fault_is_told_with_its_place_with_and_without_the_vocabulary(
    grammars: Grammars, grammar: Grammar, told: str
) -> None:
    with pytest.raises(InvalidRequest, match=told):
        grammars.matcher(grammar)
    with pytest.raises(InvalidRequest, match=told):
        Grammars(TOKENIZER).matcher(grammar)


def test_the_fault_of_a_schema_inside_a_grammar_is_told_with_its_place(grammars: Grammars) -> None:
    inner = '{"properties": {"a": {"not": {"format": "uri"}}}}'
    places = (("tools.0.function.parameters", "{}"), ("tools.1.function.parameters", inner))
    grammar = Grammar("lark", f"start: %json {inner}", "tools", schemas=places)
    with pytest.raises(InvalidRequest, match=r"tools\.1\.function\.parameters\.properties\.a"):
        grammars.matcher(grammar)


def test_a_schema_inside_a_grammar_may_ask_for_items(grammars: Grammars) -> None:
    first, second = '{"contains": {"const": 1}}', '{"items": {"not": {"type": "integer"}}}'
    places = (("p.0", first), ("p.1", second))
    text = f'start: "<" %json {first} ">" other\nother: %json {second}'
    matcher = grammars.matcher(Grammar("lark", text, "tools", schemas=places))
    assert accepted(matcher, "<[2, 1]>[1.5]") == "<[2, 1]>[1.5]"
    assert (
        accepted(grammars.matcher(Grammar("lark", text, "tools", schemas=places)), "<[2]") == "<[2"
    )


def test_a_schema_inside_a_grammar_may_ask_for_a_property_that_breaks_a_rule(
    grammars: Grammars,
) -> None:
    inner = '{"not": {"additionalProperties": {"type": "integer"}}, "minProperties": 2}'
    grammar = Grammar("lark", f'start: "<" %json {inner} ">"', "tools", schemas=(("p", inner),))
    text = '<{"a": 1, "b": "x"}>'
    assert accepted(grammars.matcher(grammar), text) == text
    assert accepted(grammars.matcher(grammar), '<{"a": "x"}>') == '<{"a": "x"'
    assert accepted(grammars.matcher(grammar), '<{"a": 1, "b": 2}>') == '<{"a": 1, "b": 2'


EXPLOSIVE = [
    {"anyOf": [{"uniqueItems": True, "items": {"enum": list(range(9000))}}, {"maxItems": 900}]},
    {"oneOf": [{"required": [f"p{n}"], "properties": {f"p{n}": {"type": "string"}}}
               for n in range(40)]},
    {"allOf": [{"not": {"patternProperties": {f"^{n}": {"minimum": n}}}} for n in range(10)]},
    {"contains": {"const": 1}, "minContains": 10**9},
    {"contains": {"const": 1}, "minItems": 10**6, "maxContains": 10**6},
    {"allOf": [{"contains": {"const": n}} for n in range(12)]},
    {"properties": {f"p{n}": {"contains": {"const": n}, "minContains": 150} for n in range(400)}},
    {"allOf": [{"anyOf": [{"required": [f"{i}{j}"]} for j in range(9)]} for i in range(9)]},
    {"type": "object", "properties": {f"p{n}": {"maxLength": 900} for n in range(1000)}},
    {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(3000)}},
    {"type": "string", "pattern": "^((a{1,1000}){1,1000}){1,1000}$"},
    {"type": "string", "pattern": "^(.*x.{300}y){20}$"},
    {"enum": [f"value {number}" for number in range(15_000)]},
    {"not": {"anyOf": [{"pattern": f"^(a|b)*{i}(a|b){{9}}$"} for i in range(60)]}},
    {
        "patternProperties": {f"(a|b)*{i}(a|b){{8}}c": {"minLength": i} for i in range(100)},
        "uniqueItems": True,
    },
    {"allOf": [{"oneOf": [{"required": [f"{i}{j}"]} for j in range(9)]} for i in range(9)]},
    {"not": {"properties": {f"p{n}": {"not": {"required": ["a"]}} for n in range(300)}}},
    {"type": "array", "minItems": 10**9, "items": {"type": "array", "minItems": 10**9}},
]  # fmt: skip


@pytest.mark.parametrize("value", EXPLOSIVE, ids=lambda value: next(iter(value)))
def test_an_explosive_schema_is_compiled_or_refused_within_a_second(
    grammars: Grammars, value: dict[str, Any]
) -> None:
    began_s = time.process_time()  # of this process alone, however busy the machine is
    try:
        matcher = grammars.matcher(schema(value))
        accepted(matcher, '"aaaa')
    except InvalidRequest:
        pass
    assert time.process_time() - began_s < 1.0


def test_a_grammar_that_would_never_be_compiled_is_refused_in_time(grammars: Grammars) -> None:
    with pytest.raises(InvalidRequest, match="takes too long"):
        grammars.matcher(Grammar("lark", "start: /a+/ start"))


def test_a_grammar_is_compiled_once_while_it_is_remembered(grammars: Grammars) -> None:
    first = schema({"const": "first"})
    grammars.matcher(first)
    for number in range(MAX_CACHED_GRAMMARS + 5):
        grammars.matcher(schema({"const": number}))
    assert len(grammars._compiled) == MAX_CACHED_GRAMMARS
    assert accepted(grammars.matcher(first), '"first"') == '"first"'


def test_a_grammar_that_another_key_has_used_is_compiled_again(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Grammar] = []
    original = grammars._compile
    monkeypatch.setattr(
        grammars, "_compile", lambda *asked: (compiled.append(asked[0]), original(*asked))[1]
    )
    secret = schema({"const": "secret"})
    for salt in ("a", "a", "b", None, "b", None):
        assert accepted(grammars.matcher(secret, salt=salt), '"secret"') == '"secret"'
    assert compiled == [secret] * 3


def test_matchers_of_one_grammar_do_not_disturb_each_other(grammars: Grammars) -> None:
    grammar = Grammar("regex", "abc")
    one, other = grammars.matcher(grammar), grammars.matcher(grammar)
    one.accept(ord("a"))
    assert allows(one, ord("b"))
    assert allows(other, ord("a"))


names = st.text("abcdefgh", min_size=1, max_size=4)
leaves = st.sampled_from(
    [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"enum": ["x", 1, None]}]
)
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items, "maxItems": 3}, inner),
        st.builds(
            lambda known: {
                "type": "object",
                "properties": known,
                "required": sorted(known),
                "additionalProperties": False,
            },
            st.dictionaries(names, inner, max_size=3),
        ),
    ),
    max_leaves=6,
)


def fits(value: Any, of: dict[str, Any]) -> bool:
    if "enum" in of:
        return value in of["enum"]
    if of["type"] == "object":
        known = of["properties"]
        return set(value) == set(known) and all(fits(value[name], known[name]) for name in known)
    if of["type"] == "array":
        return len(value) <= 3 and all(fits(item, of["items"]) for item in value)
    kinds: dict[str, type] = {"string": str, "integer": int, "boolean": bool}
    return type(value) is kinds[of["type"]]


def generated(request: GenerateRequest, matcher: LlguidanceMatcher) -> list[Delta]:
    backend = FakeBackend(Capacity(4096, 4, 2048, 512, VOCABULARY, 1, True))
    engine = Engine(backend, TOKENIZER)
    prompt = TOKENIZER.encode(request.text or "", add_bos=True, parse_special=True)
    engine.submit(request, prompt, None, matcher)
    deltas: list[Delta] = []
    while engine.busy:
        outcome = engine.step()
        assert not outcome.errors
        deltas += [delta for _, delta in outcome.deltas]
    return deltas


@examples(30)
@given(schemas, st.text(st.sampled_from('{}[]",:ab1 '), min_size=1, max_size=30))
def test_every_answer_of_the_engine_matches_its_schema(value: dict[str, Any], said: str) -> None:
    matcher = _shared().matcher(schema(value))
    deltas = generated(GenerateRequest("r", text=said, max_tokens=1500), matcher)
    finish = deltas[-1].finish
    assert finish is not None
    text = "".join(delta.text for delta in deltas)
    if finish.reason == "stop":
        assert fits(json.loads(text), value)


def test_an_answer_that_is_cut_is_told_as_length_and_one_complete_at_the_limit_is_not(
    grammars: Grammars,
) -> None:
    grammar = Grammar("regex", "abc")
    cut = generated(GenerateRequest("r", text="abc", max_tokens=2), grammars.matcher(grammar))
    whole = generated(GenerateRequest("r", text="abc", max_tokens=3), grammars.matcher(grammar))
    assert cut[-1].finish is not None
    assert cut[-1].finish.reason == "length"
    assert whole[-1].finish is not None
    assert whole[-1].finish.reason == "stop"


def test_ignore_eos_does_not_go_on_after_the_end_of_a_grammar(grammars: Grammars) -> None:
    request = GenerateRequest("r", text="ab", max_tokens=50, ignore_eos=True)
    deltas = generated(request, grammars.matcher(Grammar("regex", "a(b|bc)?")))
    assert "".join(delta.text for delta in deltas) == "ab"


def test_answers_match_when_their_requests_are_preempted(grammars: Grammars) -> None:
    backend = FakeBackend(Capacity(160, 8, 160, 64, VOCABULARY, 1, True))
    engine = Engine(backend, TOKENIZER)
    for number in range(6):
        text = f'{{"name": "{chr(97 + number) * 40}", "age": {number}}}'
        prompt = TOKENIZER.encode(text, add_bos=True, parse_special=True)
        request = GenerateRequest(f"{number}", text=text)
        engine.submit(request, prompt, None, grammars.matcher(schema(PERSON)))
    texts: dict[str, str] = {}
    while engine.busy:
        outcome = engine.step()
        assert not outcome.errors
        for id, delta in outcome.deltas:
            texts[id] = texts.get(id, "") + delta.text
    assert engine.scheduler.preemptions > 0
    assert [json.loads(texts[f"{n}"]) for n in range(6)] == [
        {"name": chr(97 + n) * 40, "age": n} for n in range(6)
    ]


def test_a_grammar_that_fails_in_the_middle_ends_its_request_only() -> None:
    backend = FakeBackend(Capacity(4096, 4, 2048, 512, VOCABULARY, 1, True))
    engine = Engine(backend, TOKENIZER)

    class Failing:
        complete = False

        def bits(self) -> bytes:
            return b"\xff" * 40

        def accept(self, token: int) -> None:
            raise InvalidRequest("grammar: too much work")

    prompt = TOKENIZER.encode("abc", add_bos=True, parse_special=True)
    engine.submit(GenerateRequest("bad", text="abc"), prompt, None, Failing())
    engine.submit(GenerateRequest("good", text="abc"), prompt)
    texts, errors = "", []
    while engine.busy:
        outcome = engine.step()
        errors += [id for id, _ in outcome.errors]
        texts += "".join(delta.text for id, delta in outcome.deltas if id == "good")
    assert errors == ["bad"]
    assert texts == "abc"


_known: list[Grammars] = []


def _shared() -> Grammars:
    if not _known:
        _known.append(Grammars(TOKENIZER))
    return _known[0]


class SpacingTokenizer(FakeTokenizer):
    """Puts a space before every text, as SentencePiece vocabularies of Llama 2's kind do."""

    def encode(
        self, text: str, *, add_bos: bool, parse_special: bool, max_tokens: int | None = None
    ) -> list[int]:
        return super().encode(
            f" {text}", add_bos=add_bos, parse_special=parse_special, max_tokens=max_tokens
        )


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        (schema({"const": "42"}), '"42"'),
        (Grammar("gbnf", 'root ::= "a"{5,5}'), "aaaaa"),
        (Grammar("choice", '["yes, indeed"]'), "yes, indeed"),
    ],
)
def test_a_vocabulary_that_puts_a_space_before_texts_holds_to_them(
    grammar: Grammar, text: str
) -> None:
    matcher = Grammars(SpacingTokenizer()).matcher(grammar)
    assert accepted(matcher, text) == text
    assert matcher.complete


def test_a_schema_that_becomes_too_much_work_ends_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runner.engine.grammar.LIMITS", LLParserLimits(step_max_items=80))
    ways = [{"type": "object", "properties": {f"k{at}": {"type": "null"}}} for at in range(60)]
    value = {"type": "object", "properties": {"a": {"anyOf": ways}}, "required": ["a"]}
    matcher = Grammars(TOKENIZER).matcher(schema(value))
    assert accepted(matcher, '{"a":') == '{"a":'
    assert not allows(matcher, END)
    with pytest.raises(InvalidRequest, match="more than 80 steps for a token"):
        matcher.accept(ord("{"))
