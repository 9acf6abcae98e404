from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.chat.families import family_of
from runner.chat.families.hermes import FAMILY
from runner.chat.family import ToolParser
from runner.chat.tools.delimited import MAX_CALL_CHARS
from runner.types import ToolCall
from tests.properties import examples

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def hermes() -> ToolParser:
    assert FAMILY.tool_parser is not None
    return FAMILY.tool_parser(())


def parse(*pieces: str) -> tuple[str, list[tuple[str, dict[str, object]]]]:
    parser = hermes()
    parts = [part for piece in pieces for part in parser.feed(piece)] + parser.finish()
    text = "".join(part for part in parts if isinstance(part, str))
    calls = [(p.name, json.loads(p.arguments)) for p in parts if isinstance(p, ToolCall)]
    return text, calls


ADD = ("add", {"a": 1})


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("no call at all", "no call at all", []),
        (CALL, "", [ADD]),
        (f"Sure.\n{CALL}", "Sure.", [ADD]),
        (f"{CALL}\n{CALL}\n", "", [ADD, ADD]),
        (f"{CALL} done", "done", [ADD]),
        (CALL.removesuffix("\n</tool_call>"), "", [ADD]),
        ("a < b <tool", "a < b <tool", []),
        ("<tool_call>not json</tool_call> x", "<tool_call>not json</tool_call> x", []),
        ("<tool_call>{\"name\": 3}</tool_call>", "<tool_call>{\"name\": 3}</tool_call>", []),
        ("<tool_call>unfinished", "<tool_call>unfinished", []),
        ('<tool_call>{"name":"f","arguments":"{\\"b\\":2}"}</tool_call>', "", [("f", {"b": 2})]),
        ('<tool_call>{"name":"f","parameters":{"b":2}}</tool_call>', "", [("f", {"b": 2})]),
        ('<tool_call>{"name":"f"}</tool_call>', "", [("f", {})]),
        ('<tool_call>{"name":"f","arguments":[1]}</tool_call>',
         '<tool_call>{"name":"f","arguments":[1]}</tool_call>', []),
        ("trailing space \n", "trailing space \n", []),
    ],
)  # fmt: skip
def test_content_and_calls_are_told_apart(
    text: str, content: str, calls: list[tuple[str, dict[str, object]]]
) -> None:
    assert parse(text) == (content, calls)


def test_call_ids_differ() -> None:
    ids = {part.id for part in hermes().feed(CALL * 50) if isinstance(part, ToolCall)}
    assert len(ids) == 50


def test_text_before_a_call_is_not_held_back() -> None:
    parser = hermes()
    assert parser.feed("Let me see") == ["Let me see"]
    assert parser.feed(" <tool") == []
    assert parser.feed("box") == [" <toolbox"]


def test_a_call_that_never_ends_becomes_content_in_bounded_time() -> None:
    text = "<tool_call>" + "x" * (2 * MAX_CALL_CHARS)
    assert parse(*[text[i : i + 7] for i in range(0, len(text), 7)]) == (text, [])


def test_only_templates_with_the_marker_get_this_parser() -> None:
    assert family_of("... <tool_call> ...") is FAMILY
    assert family_of("{{ messages }}") is None
    assert family_of(None) is None


PIECES = st.lists(
    st.sampled_from([CALL, "<tool_call>", "</tool_call>", "<", "tool", " ", "\n", "a", "{}", "é"]),
    max_size=12,
)


@examples(100)
@given(pieces=PIECES, cut=st.integers(1, 9))
def test_how_the_text_is_cut_makes_no_difference(pieces: list[str], cut: int) -> None:
    text = "".join(pieces)
    cuts = [text[i : i + cut] for i in range(0, len(text), cut)]
    assert parse(*cuts) == parse(text)


@examples(60)
@given(text=st.text(alphabet='<tol_ca/> \nx{}"', max_size=60))
def test_text_without_a_complete_call_comes_out_unchanged(text: str) -> None:
    content, calls = parse(text)
    if not calls:
        assert content.replace(" ", "").replace("\n", "") == text.replace(" ", "").replace("\n", "")
