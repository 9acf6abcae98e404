from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runner.engine.grammar import Grammars
from runner.errors import InvalidRequest
from runner.types import GenerateRequest, Grammar
from runner.worker.grammar_compiler import GrammarCompiler
from runner.worker.truncation import EncodedPrompt
from tests.fake_backend import FakeTokenizer


class Counting(FakeTokenizer):
    """A vocabulary that counts how often its pieces are asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def piece(self, token: int) -> bytes:
        self.asked += 1
        return super().piece(token)


def request(text: str, **more: Any) -> GenerateRequest:
    return GenerateRequest("r", text="x", grammar=Grammar("regex", text, **more))


def test_the_vocabulary_is_prepared_with_the_first_good_grammar_and_once() -> None:
    tokenizer = Counting()
    matchers = GrammarCompiler(tokenizer)
    with pytest.raises(InvalidRequest):
        matchers.matcher(request("(["), EncodedPrompt([1], ""))
    assert tokenizer.asked == 0
    matchers.matcher(request("a"), EncodedPrompt([1], ""))
    first = tokenizer.asked
    assert first > 0
    matchers.matcher(request("b"), EncodedPrompt([1], ""))
    assert tokenizer.asked == first


def test_a_compiled_grammar_is_used_again_by_requests_of_one_salt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = []
    original = Grammars._compile
    monkeypatch.setattr(
        Grammars, "_compile", lambda *asked: (compiled.append(asked[1]), original(*asked))[1]
    )
    matchers = GrammarCompiler(FakeTokenizer())
    for salt in ("a", "b", "a"):
        matchers.matcher(replace(request("a"), cache_salt=salt), EncodedPrompt([1], ""))
    assert len(compiled) == 2


@pytest.mark.parametrize(("begun", "allowed"), [("", False), ("<t>", True)])
def test_a_prompt_that_opened_the_reasoning_is_told_to_the_grammar(
    begun: str, allowed: bool
) -> None:
    asked = request("a", reasoning=("<t>", "</t>"))
    matcher = GrammarCompiler(FakeTokenizer()).matcher(asked, EncodedPrompt([1], begun))
    bits = matcher.bits()
    assert bool(bits[ord("h") >> 3] >> (ord("h") & 7) & 1) is allowed
