"""Calls in pieces: put together they are the calls that the whole text has."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.chat.output import OutputDelta, OutputParser, output_parser
from runner.chat.tools.call_stream import ToolCallDelta
from runner.chat.tools.delimited import MAX_CALL_CHARS
from tests.properties import examples
from tests.unit.runner.chat.families.test_families import (
    AS_JSON,
    ONE_CALL,
    PIECES,
    TEMPLATES,
    TWO_CALLS,
)

HARMONY = "<|start|><|channel|><|message|>"
HARMONY_CALL = (
    f"<|channel|>commentary to=functions.add <|constrain|>json<|message|>{AS_JSON}<|call|>"
)
ALL = {**TEMPLATES, "harmony": HARMONY}
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("add", "f", "g")]
SHOWN = ("hermes", "mistral", "deepseek", "kimi", "cohere", "granite", "llama3", "plain_json")
"""Families whose calls are shown early; those of others come whole."""
WRITTEN = [
    *[row for row in ONE_CALL if AS_JSON in row[1] and row[0] in SHOWN],
    *[row for row in TWO_CALLS if '"a": 1' in row[1] and row[0] in SHOWN],
    ("harmony", HARMONY_CALL),
    ("hermes", f'I add. <tool_call>{{"name": "add", "arguments": {AS_JSON}}}</tool_call> Done.'),
]
"""Calls whose arguments are shown while they are written."""


def parser(family: str, *, in_deltas: bool, single: bool = False) -> OutputParser:
    found = output_parser(ALL[family], tools=TOOLS, in_deltas=in_deltas, single=single)
    assert found is not None
    return found


def parse(family: str, *pieces: str, in_deltas: bool, single: bool = False) -> OutputDelta:
    reader = parser(family, in_deltas=in_deltas, single=single)
    return OutputDelta.joined([*map(reader.feed, pieces), reader.finish()])


def said(parts: OutputDelta) -> tuple[str, list[tuple[str, str]]]:
    return parts.content, [(call.name, call.arguments) for call in parts.calls]


@pytest.mark.parametrize(("family", "text"), [*ONE_CALL, *TWO_CALLS, *WRITTEN])
def test_pieces_put_together_are_the_whole_call(family: str, text: str) -> None:
    whole = said(parse(family, text, in_deltas=False))
    assert whole[1]
    assert said(parse(family, *text, in_deltas=True)) == whole
    assert said(parse(family, text, in_deltas=True)) == whole


@pytest.mark.parametrize(("family", "text"), WRITTEN)
def test_arguments_are_shown_while_they_are_written(family: str, text: str) -> None:
    reader = parser(family, in_deltas=True)
    at = text.index("{x}") if "{x}" in text else text.index('"a": 1') + 5
    parts = [part for char in text[:at] for part in reader.feed(char).in_order]
    pieces = [part for part in parts if isinstance(part, ToolCallDelta)]
    assert pieces[0].name is not None
    assert pieces[0].arguments == ""
    assert "".join(piece.arguments for piece in pieces).startswith('{"a": ')


@examples(50)
@given(st.sampled_from(WRITTEN), st.data())
def test_damaged_calls_do_not_depend_on_the_pieces(
    row: tuple[str, str], data: st.DataObject
) -> None:
    family, text = row
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    damaged = text[:start] + data.draw(st.text(max_size=3)) + text[end:]
    cut = data.draw(st.integers(0, len(damaged)))
    found = said(parse(family, damaged[:cut], damaged[cut:], in_deltas=True))
    assert found == said(parse(family, damaged, in_deltas=True))
    assert found == said(parse(family, *damaged, in_deltas=True))
    whole = said(parse(family, damaged, in_deltas=False))
    if found != whole:  # only where a call was shown that then turned out to be none
        assert found[1]


@examples(60)
@given(
    st.sampled_from(sorted(ALL)),
    st.lists(st.sampled_from([*PIECES, AS_JSON, '{"name": "add", "arguments": ']), max_size=12),
    st.integers(0, 200),
)
def test_any_row_of_marks_is_read_the_same_in_pieces(
    family: str, pieces: list[str], cut: int
) -> None:
    text = "".join(pieces)
    found = said(parse(family, text, in_deltas=True))
    assert said(parse(family, text[:cut], text[cut:], in_deltas=True)) == found
    assert said(parse(family, *text, in_deltas=True)) == found


CALL = '<tool_call>{"name": "f", "arguments": '


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"a": 1,}}</tool_call>', '{"a": 1}'),
        ('{"a": {"b": [1', '{"a": {"b": [1]}}'),
        ("{'a': True}}</tool_call>", '{"a": true}'),
        ('{"a": 1}</tool_call>', '{"a": 1}'),
        ('{"t": "</tool_call>"}}</tool_call>', '{"t": "</tool_call>"}'),
        ('"{\\"a\\": 1}"}</tool_call>', '{"a": 1}'),
    ],
)
def test_what_the_parser_mends_is_mended(text: str, arguments: str) -> None:
    assert said(parse("hermes", *(CALL + text), in_deltas=True)) == ("", [("f", arguments)])


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"a": "unclos', '{"a": "unclos'),
        ('{"a": "unclos</tool_call>', '{"a": "unclos</tool_call>'),
        ('{"a": "say "hi""}}</tool_call>', '{"a": "say "hi""}}'),
        ('{"a": 1, "b":', '{"a": 1, "b": '),
    ],
)
def test_a_call_that_is_broken_off_keeps_arguments_that_are_no_json(
    text: str, arguments: str
) -> None:
    assert said(parse("hermes", *(CALL + text), in_deltas=True)) == ("", [("f", arguments)])
    with pytest.raises(ValueError, match=r"."):
        json.loads(arguments)


def test_brackets_too_many_after_a_call_are_dropped_and_words_are_content() -> None:
    text = f'{CALL}{{"a": 1}}}}}}}}</tool_call>'
    assert said(parse("hermes", *text, in_deltas=True)) == ("", [("f", '{"a": 1}')])
    text = '{"name": "f", "arguments": {"a": 1}} is how to call it.'
    assert said(parse("plain_json", *text, in_deltas=True))[1] == [("f", '{"a": 1}')]
    assert "is how to call it." in said(parse("plain_json", *text, in_deltas=True))[0]


def test_a_tool_that_was_not_offered_comes_whole() -> None:
    text = '<tool_call>{"name": "h", "arguments": {"a": 1}}</tool_call>'
    reader = parser("hermes", in_deltas=True)
    assert [part for char in text[:-1] for part in reader.feed(char).in_order] == []
    assert said(parse("hermes", *text, in_deltas=True)) == ("", [("h", '{"a": 1}')])


def test_only_the_first_call_counts_where_there_may_be_one() -> None:
    text = '{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}'
    found = said(parse("llama3", *text, in_deltas=True, single=True))
    assert found == ("", [("f", '{"a": 1}')])


@pytest.mark.parametrize("family", ["hermes", "plain_json", "harmony", "mistral"])
def test_a_call_longer_than_any_ends_and_the_rest_is_content(family: str) -> None:
    begins = {
        "hermes": CALL,
        "plain_json": '{"name": "f", "arguments": ',
        "harmony": "<|channel|>commentary to=functions.f<|message|>",
        "mistral": "[TOOL_CALLS]f[ARGS]",
    }
    text = begins[family] + '{"a": "' + "x" * (MAX_CALL_CHARS + 10) + '"}'
    sizes: set[tuple[int, Any]] = set()
    for size in (len(text), 4096, 1000):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        content, calls = said(parse(family, *pieces, in_deltas=True))
        assert [name for name, _ in calls] == ["f"]
        sizes.add((len(content), len(calls[0][1])))
    assert len(sizes) == 1
