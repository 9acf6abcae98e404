from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.engine.grammar import Grammars
from runner.engine.unique_items import VocabularyIndex
from runner.types import Grammar
from tests.fake_backend import FakeTokenizer
from tests.properties import examples
from tests.unit.runner.engine.test_grammar import accepted

UNIQUE: dict[str, Any] = {"type": "array", "uniqueItems": True}
LISTED = {**UNIQUE, "items": {"enum": ["ab", "ac", 1, 12, True]}}
TAGS = ("<think>", "</think>")


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(FakeTokenizer())


def grammar(schema: Any, **more: Any) -> Grammar:
    return Grammar("json_schema", json.dumps(schema), **more)


@pytest.mark.parametrize(
    ("schema", "text", "allowed"),
    [
        ({**UNIQUE, "items": {"type": "string"}}, '["ab","a","ab"]', '["ab","a","ab'),
        (LISTED, '["ab", 12, 1, true, "ac"]', None),
        (LISTED, '["ab", "ab"]', '["ab", "a'),
        (LISTED, "[true, true]", "[true, "),
        (UNIQUE, "[1, 1.0]", "[1, 1.0"),
        (UNIQUE, "[12,1,1]", "[12,1,1"),
        (UNIQUE, '[{"a":1},{"a": 1}]', '[{"a":1},{"a": 1'),
        (UNIQUE, "[[1,1],[1]]", None),
        ({"properties": {"x": UNIQUE}}, '{"x": [[],[ ]]}', '{"x": [[],[ '),
        ({"properties": {"x": UNIQUE}}, '{"y": [1,1]}', None),
        ({"items": {**UNIQUE, "items": {"type": "integer"}}}, "[[1,2],[1,2]]", None),
    ],
)
def test_an_item_that_was_there_cannot_be_written_again(
    grammars: Grammars, schema: Any, text: str, allowed: str | None
) -> None:
    assert accepted(grammars.matcher(grammar(schema)), text) == (allowed or text)


def test_items_differ_behind_reasoning_and_not_in_it(grammars: Grammars) -> None:
    reasoning = grammar(UNIQUE, reasoning=TAGS)
    assert accepted(grammars.matcher(reasoning), "<think>[1,1]</think> [1,1]").endswith("> [1,1")
    assert accepted(grammars.matcher(reasoning), "[1,1]") == "[1,1"
    opened = grammars.matcher(reasoning, opened=True)
    assert accepted(opened, "[1,1]</think>[1,1]") == "[1,1]</think>[1,1"
    headed = grammar(UNIQUE, reasoning=("[T]", "[/T][A]"), head="[A]")
    assert accepted(grammars.matcher(headed), "[A][1,1]") == "[A][1,1"


STRINGS = {**UNIQUE, "items": {"type": "string"}}
EITHER = {"anyOf": [UNIQUE, {"type": "array", "maxItems": 2}]}
OF_B = {"properties": {"k": {"const": "b"}}}
BY_KIND = {
    "properties": {"k": {"enum": ["a", "b"]}, "v": {}},
    "required": ["k"],
    "anyOf": [{"properties": {"k": {"const": "a"}, "v": UNIQUE}}, OF_B],
}
ONE_OF_TWO = {"properties": {"p": {}, "q": {}},
              "anyOf": [{"properties": {"p": UNIQUE}}, {"properties": {"q": UNIQUE}}]}  # fmt: skip
NODE = {"$ref": "#/$defs/n"}
LONG = {**UNIQUE, "items": {"anyOf": [NODE, {"type": "integer"}]}}
SHORT = {"type": "array", "maxItems": 2, "items": NODE}
NESTED = {**NODE, "$defs": {"n": {"anyOf": [LONG, SHORT]}}}


@pytest.mark.parametrize(
    ("schema", "text", "allowed"),
    [
        (EITHER, "[1, 1]", None),
        (EITHER, "[1, 2, 3]", None),
        (EITHER, "[1, 1, 2]", "[1, 1"),
        (EITHER, "[1, 2, 2]", "[1, 2, 2"),
        (EITHER, "[[1, 1], [1, 1]]", None),
        ({"anyOf": [STRINGS, {"items": {"type": "integer"}}]}, "[1, 1]", None),
        ({"anyOf": [STRINGS, {"items": {"type": "integer"}}]}, '["a", "a"]', '["a", "a'),
        (BY_KIND, '{"k":"b","v":[1,1],"w":[1,1]}', None),
        (BY_KIND, '{"k":"a","v":[1,1]}', '{"k":"a","v":[1,1'),
        (ONE_OF_TWO, '{"p":[1,1],"q":[1,2]}', None),
        (ONE_OF_TWO, '{"p":[1,2],"q":[1,1]}', None),
        (ONE_OF_TWO, '{"p":[[1,1],[1,1]],"q":[1,1]}', '{"p":[[1,1],[1,1]],"q":[1,1'),
        (NESTED, "[[1,2,3],[1,2,3]]", None),
        (NESTED, "[1,2,[[],[]]]", None),
        (NESTED, "[1,2,[[],[]],[[],[]]]", "[1,2,[[],[]],[[],[]"),
        (NESTED, "[[[],[]],[[],[]]]", None),
        (NESTED, "[[[],[]],[[],[],[]]]", "[[[],[]],[[],[]"),
        ({"contains": {**UNIQUE, "minItems": 2}}, "[[1, 1]]", "[[1, 1]"),
        ({"contains": {**UNIQUE, "minItems": 2}}, "[[1, 1], [2, 1]]", None),
    ],
)
def test_items_may_repeat_where_an_alternative_lets_them(
    grammars: Grammars, schema: Any, text: str, allowed: str | None
) -> None:
    assert accepted(grammars.matcher(grammar(schema)), text) == (allowed or text)


def test_alternatives_part_behind_reasoning_and_in_drafts(grammars: Grammars) -> None:
    matcher = grammars.matcher(grammar(EITHER, reasoning=TAGS))
    assert accepted(matcher, "<think>[1,1,1]</think>[1,").endswith("</think>[1,")
    behind_1, behind_end = matcher.draft([ord("1"), ord("]")])
    assert not behind_1.bits()[ord(",") >> 3] >> (ord(",") & 7) & 1
    assert behind_1.bits()[ord("]") >> 3] >> (ord("]") & 7) & 1
    assert behind_end.bits()[Pieces.END >> 3] >> (Pieces.END & 7) & 1
    wrong = matcher.draft([ord("1"), ord(","), ord("}"), ord("1")])
    assert all(mask.bits() for mask in wrong)
    assert accepted(matcher, "1,2]") == "1"
    assert accepted(matcher, "]") == "]"


def test_the_masks_of_a_draft_keep_items_apart_and_leave_the_answer_where_it_is(
    grammars: Grammars,
) -> None:
    matcher = grammars.matcher(grammar(UNIQUE, reasoning=TAGS))
    assert accepted(matcher, '<think>[1,1]</think>["a","').endswith('"a","')
    behind_a, behind_b = matcher.draft([ord("a"), ord("b")])
    assert not behind_a.bits()[ord('"') >> 3] >> (ord('"') & 7) & 1
    assert behind_b.bits()[ord('"') >> 3] >> (ord('"') & 7) & 1
    assert accepted(matcher, 'ab","a"') == 'ab","a'


class Pieces(FakeTokenizer):
    """Bytes, and tokens of several."""

    END = 257
    more = ('","', '"]', ', "', "12", "1]", '"a"', '{"a"', "}]", '}, {"a"', "\n ]", ',"ab"', "true",
            '["', '[["a', '"]]', "[[1,1],[")  # fmt: skip

    def __init__(self) -> None:
        self.vocabulary = FakeTokenizer.vocabulary + len(self.more)

    def piece(self, token: int) -> bytes:
        at = token - FakeTokenizer.vocabulary
        return self.more[at].encode() if at >= 0 else super().piece(token)


def test_tokens_of_several_characters_are_forbidden_where_they_would_repeat() -> None:
    index = VocabularyIndex(Pieces())
    texts = {Pieces().piece(token) for token in index.going_on(b'"')}
    assert {b'","', b'"]'} <= texts
    assert {Pieces().piece(token) for token in index.starting(b'"a"')} == {b'"a"'}
    assert {Pieces().piece(token) for token in index.following(b'"ab"')} == {b',"ab"'}


@pytest.mark.parametrize(
    ("parts", "is_allowed"),
    [
        (('["', "a", '","', "a", '"]'), True),
        (('["', "a", '","', "a", '","'), False),
        (('[["a', '","', "a", '"]]'), True),
        (("[[1,1],[", "1", ",", "1]", "]"), True),
        (("[[1,1],[", "1", ",", "1]", ","), False),
        (("[", "[[1,1],[", "1", ",", "2", "]"), True),
    ],
)
def test_alternatives_part_within_tokens_of_several_characters(
    parts: tuple[str, ...], is_allowed: bool
) -> None:
    tokenizer = Pieces()
    tokens = {tokenizer.piece(token): token for token in range(tokenizer.vocabulary)}
    matcher = Grammars(tokenizer).matcher(grammar(EITHER))
    for at, part in enumerate(parts, 1):
        token = tokens[part.encode()]
        allows = matcher.bits()[token >> 3] >> (token & 7) & 1
        assert allows == (is_allowed or at < len(parts)), part
        if allows:
            matcher.accept(token)


items = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.5, "", "a", "ab", 'x"y', "é"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=3,
)  # fmt: skip


@examples(30)
@given(st.lists(items, max_size=5), st.sampled_from([None, 1]))
def test_any_array_is_allowed_if_and_only_if_its_items_differ(
    value: list[Any], indent: int | None
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    whole = accepted(_shared().matcher(grammar(UNIQUE)), text) == text
    assert whole == jsonschema.Draft202012Validator(UNIQUE).is_valid(value)


_known: list[Grammars] = []


def _shared() -> Grammars:
    if not _known:
        _known.append(Grammars(FakeTokenizer()))
    return _known[0]
