"""What a request allows token by token, whatever the logits are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.engine.sequence import GrammarMatcher
from runner.engine.token_constraint import ReasoningBudget, SeenNgrams, TokenConstraint
from runner.types import SamplingParams

VOCABULARY = 300
EVERY = set(range(VOCABULARY))


def allowed(matcher: GrammarMatcher) -> set[int]:
    bits = matcher.bits()
    return {token for token in range(len(bits) * 8) if bits[token >> 3] >> (token & 7) & 1}


def constraint(
    prompt: Sequence[int] = (), budget: ReasoningBudget | None = None, **params: object
) -> TokenConstraint:
    sampling = SamplingParams(**params)  # type: ignore[arg-type]
    return TokenConstraint(sampling, VOCABULARY, prompt, budget)


class Only(GrammarMatcher):
    """A grammar that allows the same tokens at every place."""

    complete = False
    ends_answer = True

    def __init__(self, *tokens: int) -> None:
        self._tokens = tokens

    def bits(self) -> bytes:
        found = bytearray(-(-VOCABULARY // 32) * 4)
        for token in self._tokens:
            found[token >> 3] |= 1 << (token & 7)
        return bytes(found)

    def accept(self, token: int) -> None:
        assert token in self._tokens


def test_masks_are_as_long_as_those_of_grammars_and_hold_no_token_beyond_the_vocabulary() -> None:
    mask = constraint(min_tokens=1)
    assert len(mask.bits()) == -(-VOCABULARY // 32) * 4
    assert allowed(mask) == EVERY


def test_only_the_allowed_tokens_are() -> None:
    assert allowed(constraint(allowed_token_ids=(0, 7, 8, 299))) == {0, 7, 8, 299}


def test_nothing_ends_an_answer_before_its_least_tokens() -> None:
    mask = constraint(min_tokens=2, end_token_ids=(5, 6))
    for _ in range(2):
        assert allowed(mask) == EVERY - {5, 6}
        mask.accept(1)
    assert allowed(mask) == EVERY


def test_a_banned_run_never_becomes_whole_also_where_the_prompt_begins_it() -> None:
    mask = constraint(prompt=(1, 2), banned_runs=((2, 3, 4), (9,)))
    assert allowed(mask) == EVERY - {9}
    mask.accept(3)
    assert allowed(mask) == EVERY - {9, 4}
    mask.accept(5)
    assert allowed(mask) == EVERY - {9}


def test_a_run_of_so_many_tokens_occurs_once() -> None:
    mask = constraint(prompt=(1, 2, 3, 1, 2), no_repeat_ngram_size=3)
    assert allowed(mask) == EVERY - {3}
    mask.accept(4)
    mask.accept(1)
    mask.accept(2)
    assert allowed(mask) == EVERY - {3, 4}


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 5))
def test_ngrams_seen_are_those_of_a_plain_look(tokens: list[int], size: int) -> None:
    before = tokens[len(tokens) - size + 1 :] if size > 1 else []
    plain = set()
    if len(tokens) >= size - 1:
        runs = [tokens[at : at + size] for at in range(len(tokens) - size + 1)]
        plain = {run[-1] for run in runs if run[:-1] == before}
    assert SeenNgrams(size, tokens).next() == plain


def test_a_grammar_and_a_constraint_both_count() -> None:
    params = SamplingParams(allowed_token_ids=(1, 2), min_tokens=1, end_token_ids=(2,))
    mask = TokenConstraint(params, VOCABULARY, (), None, Only(1, 2, 3))
    assert allowed(mask) == {1}
    assert mask.ends_answer


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(allowed_token_ids=(50,)),
        SamplingParams(min_tokens=9, end_token_ids=(1, 2, 3)),
        SamplingParams(banned_runs=((1,), (2,), (3,))),
    ],
)
def test_what_would_leave_no_token_gives_way_to_the_grammar(params: SamplingParams) -> None:
    assert allowed(TokenConstraint(params, VOCABULARY, (), None, Only(1, 2, 3))) == {1, 2, 3}


def budget(max_tokens: int, *, opened: bool, closing: str = "</t>") -> ReasoningBudget:
    return ReasoningBudget(
        max_tokens, b"<t>", b"</t>", tuple(closing.encode()), opened, lambda token: bytes([token])
    )


def written(mask: TokenConstraint, text: bytes) -> bytes:
    """What comes of text where tokens that are not allowed are replaced."""
    out = b""
    for wanted in text:
        open_to = allowed(mask)
        token = wanted if wanted in open_to else min(open_to)
        mask.accept(token)
        out += bytes([token])
    return out


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("limit", [0, 1, 5])
def test_reasoning_ends_at_its_limit(limit: int, opened: bool) -> None:
    start = b"" if opened else b" <t>"
    text = start + b"abcdefghijklmnopqrst"
    found = written(constraint(budget=budget(limit, opened=opened)), text)
    thought = text[: len(start) + limit]
    assert found == thought + b"</t>" + text[len(thought) + 4 :]


def test_reasoning_that_ends_by_itself_is_left_alone() -> None:
    text = b"<t>ab</t>answer as long as it likes"
    assert written(constraint(budget=budget(3 + 5, opened=False)), text) == text


def test_an_answer_without_reasoning_has_no_limit() -> None:
    text = b"no <t> at the beginning, and more than ten"
    assert written(constraint(budget=budget(2, opened=False)), text) == text


def test_a_character_is_written_to_its_end_before_reasoning_is_ended() -> None:
    euro = "\u20ac".encode()
    text = b"<t>a" + euro + b"bcdefgh"
    found = written(constraint(budget=budget(2, opened=False)), text)
    assert found == b"<t>a" + euro + b"</t>" + text[len(b"<t>a" + euro) + 4 :]
