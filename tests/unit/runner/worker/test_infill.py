"""The token sequence of a gap to be filled in. The fake tokenizer has a token for each byte."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.types import GenerateRequest, Infill
from runner.worker.infill import infill_tokens
from runner.worker.prompts import PromptEncoder
from runner.worker.truncation import fit_prompt
from tests.fake_backend import BOS, CHAT_TEMPLATE, END, FakeTokenizer

PRE, SUF, MID, REP, SEP = 1, 2, 3, 4, 5
IDS = {"pre": PRE, "suf": SUF, "mid": MID}
GAP = Infill("ab", "cd", tokens=IDS)


def tokens(infill: Infill, max_tokens: int | None = None) -> list[int]:
    return infill_tokens(FakeTokenizer(), infill, max_tokens)


def test_the_prefix_is_first_or_the_suffix() -> None:
    assert tokens(GAP) == [BOS, PRE, *b"ab", SUF, *b"cd", MID]
    assert tokens(replace(GAP, suffix_first=True)) == [BOS, SUF, *b"cd", PRE, *b"ab", MID]


def test_a_vocabulary_without_a_middle_token_ends_with_the_prefix() -> None:
    codestral = replace(GAP, tokens={"pre": PRE, "suf": SUF}, suffix_first=True)
    assert tokens(codestral) == [BOS, SUF, *b"cd", PRE, *b"ab"]


def test_control_tokens_count_in_the_prompt_only() -> None:
    gap = Infill("<|end|>", "<|im_end|>", "x<|im_end|>", tokens=IDS)
    expected = [BOS, PRE, *b"<|end|>", *b"x", END, SUF, *b"<|im_end|>", MID]
    assert tokens(gap) == expected


def test_other_files_stand_before_the_prefix() -> None:
    gap = replace(GAP, extra=(("f.py", "xy"),), tokens={**IDS, "rep": REP, "sep": SEP})
    before = [REP, *b"myproject\n", SEP, *b"f.py\n", *b"xy", SEP, *b"filename\n"]
    assert tokens(gap) == [BOS, *before, PRE, *b"ab", SUF, *b"cd", MID]
    assert tokens(replace(gap, extra=())) == tokens(GAP)
    snippet = [*b"\n\n--- snippet ---\n\nxy"]
    assert tokens(replace(gap, tokens=IDS)) == [BOS, *snippet, *tokens(GAP)[1:]]


@pytest.mark.parametrize(
    ("max_tokens", "files", "prefix", "suffix"),
    [
        (200, b"\n\n--- snippet ---\n\n0123456789", b"abcdefgh", b"ijklmn"),
        (24, b"456789", b"abcdefgh", b"ijklmn"),
        (16, b"", b"abcdefgh", b"ijkl"),
        (12, b"", b"cdefgh", b"ij"),
        (4, b"", b"", b""),
    ],
)
def test_what_is_far_from_the_gap_is_left_out(
    max_tokens: int, files: bytes, prefix: bytes, suffix: bytes
) -> None:
    gap = Infill("abcdefgh", "ijklmn", extra=(("f", "0123456789"),), tokens=IDS)
    assert tokens(gap, max_tokens) == [BOS, *files, PRE, *prefix, SUF, *suffix, MID]


def test_a_prompt_leaves_its_answer_room_in_the_context() -> None:
    request = GenerateRequest(infill=Infill("a" * 90, "b" * 90, tokens=IDS), max_tokens=10)
    prompts = PromptEncoder(FakeTokenizer(), CHAT_TEMPLATE)
    assert len(fit_prompt(prompts, request, 100).tokens) == 90
    assert len(fit_prompt(prompts, replace(request, max_tokens=None), 100).tokens) == 75
    assert len(fit_prompt(prompts, request, 1000).tokens) == 184
