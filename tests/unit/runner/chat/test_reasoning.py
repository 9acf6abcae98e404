"""Reasoning is taken off the beginning of an answer, however the text is cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.chat.families import FAMILIES, reasoning_tags_of
from runner.chat.output import OutputDelta
from runner.chat.reasoning import REASONING_TAGS, ReasoningParser

PIECES = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<th", "ink>", "</", "think", ">", " ", "\n", "a", "é"]
    ),
    max_size=14,
)


def parts(*pieces: str) -> OutputDelta:
    parser = ReasoningParser("<think>", "</think>")
    return OutputDelta.of(
        [part for piece in pieces for part in parser.feed(piece)] + parser.finish()
    )


@pytest.mark.parametrize(
    ("pieces", "reasoning", "content"),
    [
        (["<think>a</think>b"], "a", "b"),
        (["\n <think>\na\n</think>\n\nb\n"], "a\n", "b\n"),
        (["<thi", "nk>", "a</thi", "nk", ">b"], "a", "b"),
        (["a<think>b</think>c"], "", "a<think>b</think>c"),
        (["<think></think>b"], "", "b"),
        (["<think>never ends"], "never ends", ""),
        (["<think>ends in the mark</thi"], "ends in the mark</thi", ""),
        (["<thi"], "", "<thi"),
        (["<think>a</think>b</think>c"], "a", "b</think>c"),
        ([""], "", ""),
    ],
)
def test_what_stands_between_the_marks_is_reasoning(
    pieces: list[str], reasoning: str, content: str
) -> None:
    found = parts(*pieces)
    assert (found.reasoning, found.content) == (reasoning, content)


@given(PIECES)
def test_the_pieces_make_no_difference(pieces: list[str]) -> None:
    assert parts(*pieces) == parts("".join(pieces)) == parts(*"".join(pieces))


@given(PIECES)
def test_nothing_but_blanks_and_marks_is_lost(pieces: list[str]) -> None:
    text = "".join(pieces)
    found = parts(*pieces)
    wanted = text.lstrip()
    if wanted.startswith("<think>"):
        wanted = wanted.removeprefix("<think>").replace("</think>", "", 1)
    wanted = "".join(wanted.split())
    whole = "".join((found.reasoning + found.content).split())
    assert whole == wanted


@given(st.text(max_size=60).filter(lambda text: "<" not in text))
def test_text_without_marks_passes_unchanged_and_at_once(text: str) -> None:
    found = OutputDelta.of(ReasoningParser("<think>", "</think>").feed(text))
    assert found == OutputDelta(text) or not text.strip()


def test_the_template_tells_the_marks() -> None:
    for pair in (*REASONING_TAGS, *(family.reasoning_tags for family in FAMILIES)):
        assert reasoning_tags_of(f"{{{{ content.split('{pair[1]}')[-1] }}}}") == pair
    assert reasoning_tags_of("{{ messages }}") is None
    assert reasoning_tags_of(None) is None
