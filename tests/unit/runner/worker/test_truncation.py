from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.types import Dropped, GenerateRequest, Message, ToolCall
from runner.worker.prompts import PromptEncoder
from runner.worker.truncation import (
    MAX_TOKEN_CHARS,
    EncodedPrompt,
    droppable_turns,
    fit_prompt,
    n_keep_tokens,
)
from tests.fake_backend import CHAT_TEMPLATE, FakeTokenizer
from tests.properties import examples

SYSTEM = Message("system", "Be kind.")
CALL = Message("assistant", "", tool_calls=(ToolCall("c1", "add", "{}"),))
RESULT = Message("tool", "2", tool_call_id="c1")


def fitted(messages: list[Message], context: int, **fields: Any) -> EncodedPrompt:
    request = GenerateRequest(
        "x", messages=tuple(messages), **{"truncate_messages": True, **fields}
    )
    return fit_prompt(PromptEncoder(FakeTokenizer(), CHAT_TEMPLATE), request, context)


def text(fit: EncodedPrompt) -> str:
    return b"".join(FakeTokenizer().piece(token) for token in fit.tokens).decode()


def talk(turns: int) -> list[Message]:
    pairs = [(Message("user", f"ask {n}"), Message("assistant", f"say {n}")) for n in range(turns)]
    return [SYSTEM, *(message for pair in pairs for message in pair), Message("user", "last")]


def test_a_conversation_that_fits_stays_whole() -> None:
    assert fitted(talk(3), 10_000).dropped is None


def test_the_fewest_oldest_turns_go_and_system_and_last_message_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = len(fitted(talk(6), 10_000).tokens)
    with caplog.at_level(logging.WARNING):
        result = fitted(talk(6), whole, max_tokens=1)
    assert result.dropped == Dropped(2)
    assert "Be kind." in text(result)
    assert "last" in text(result)
    assert "ask 0" not in text(result)
    assert "ask 1" in text(result)
    assert "the 2 oldest messages and 0 tokens were left out" in caplog.text


def test_room_for_the_answer_is_made_where_turns_are_dropped() -> None:
    whole = len(fitted(talk(20), 10_000).tokens)
    assert len(fitted(talk(20), whole).tokens) <= whole - whole // 4


def test_nothing_is_dropped_unless_the_request_allows_it() -> None:
    messages = talk(6)
    result = fitted(messages, 60, truncate_messages=False)
    assert result == EncodedPrompt(fitted(messages, 10_000).tokens, "")


def test_what_cannot_fit_comes_back_whole_for_the_engine_to_refuse() -> None:
    result = fitted([Message("user", "a"), Message("user", "x" * 500)], 100)
    assert result.dropped is None
    assert len(result.tokens) > 500


def shortened(**fields: Any) -> EncodedPrompt:
    request = GenerateRequest(
        "x", truncate_messages=True, truncate_tokens=True, **{"n_keep": 4, **fields}
    )
    return fit_prompt(PromptEncoder(FakeTokenizer(), CHAT_TEMPLATE), request, 100)


def test_tokens_of_the_middle_go_where_dropping_messages_is_not_enough() -> None:
    last = Message("user", "x" * 300 + " the end")
    result = shortened(messages=(SYSTEM, Message("user", "old"), last))
    assert len(result.tokens) == 75
    assert "Be kind." in text(result)
    assert "the end" in text(result)
    assert "old" not in text(result)
    assert result.dropped is not None
    assert result.dropped.messages == 1
    whole = fitted([SYSTEM, last], 10_000).tokens
    assert result.dropped.tokens == len(whole) - 75
    plain = shortened(text="begin" + "x" * 300 + "end", max_tokens=10)
    assert (len(plain.tokens), text(plain)[:3], text(plain)[-3:]) == (90, "beg", "end")


def test_a_prompt_stays_whole_where_the_context_may_not_be_shifted() -> None:
    assert shortened(text="x" * 300, n_keep=None).dropped is None
    assert shortened(tokens=(97,) * 300).dropped is None


def test_of_a_text_far_too_long_only_the_ends_are_tokenized() -> None:
    seen: list[int] = []

    class Counting(FakeTokenizer):
        def encode(self, text: str, **options: Any) -> list[int]:
            seen.append(len(text))
            return super().encode(text, **options)

    request = GenerateRequest("x", text="b" + "x" * (4 << 20) + "e", truncate_tokens=True, n_keep=4)
    prompts = PromptEncoder(Counting(), CHAT_TEMPLATE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runner.worker.truncation.MIN_WHOLE_CHARS", 1000)
        seen.clear()
        result = fit_prompt(prompts, request, 100)
    assert seen[0] > 4 << 20  # the fake encodes all; llama.cpp's stops at the context
    assert sum(seen[1:]) <= max(1000, 100 * MAX_TOKEN_CHARS) + 10
    assert text(result).startswith("b")
    assert text(result).endswith("e")


def test_a_message_far_too_long_is_cut_before_a_template_copies_it() -> None:
    content = "b" + "x" * 100_000 + "\U0001f600e"
    request = GenerateRequest(
        "x", messages=(Message("user", content),), truncate_tokens=True, n_keep=4
    )
    rendered: list[int] = []

    class Watched(PromptEncoder):
        def render(self, request: GenerateRequest) -> str:
            text = super().render(request)
            rendered.append(len(text))
            return text

    prompts = Watched(FakeTokenizer(), CHAT_TEMPLATE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runner.worker.truncation.MIN_WHOLE_CHARS", 1000)
        short = fit_prompt(prompts, request, 100)
        assert rendered[-1] < 2 * 100 * MAX_TOKEN_CHARS + 100
        patch.setattr("runner.worker.truncation._ends", lambda message, max_chars: message)
        long = fit_prompt(prompts, request, 100)
    assert rendered[-1] > 100_000
    assert short.tokens == long.tokens


def test_a_turn_goes_with_its_tool_calls_and_their_results() -> None:
    messages = [SYSTEM, Message("user", "a"), CALL, RESULT, Message("user", "b")]
    assert droppable_turns(messages) == [[1, 2, 3]]


def test_in_a_long_last_turn_calls_go_with_their_results_and_the_question_stays() -> None:
    messages = [Message("user", "a"), CALL, RESULT, RESULT, CALL, RESULT]
    assert droppable_turns(messages) == [[1, 2, 3]]


roles = st.sampled_from([SYSTEM, Message("user", "u"), Message("assistant", "a"), CALL, RESULT])


@examples(60)
@given(st.lists(roles, min_size=1, max_size=12), st.integers(0, 12))
def test_a_result_never_stays_without_the_message_before_it(
    messages: list[Message], count: int
) -> None:
    units = droppable_turns(messages)
    gone = {index for unit in units[:count] for index in unit}
    spoken = [index for index, message in enumerate(messages) if message.role != "system"]
    assert not spoken or spoken[-1] not in gone
    assert all(messages[index].role != "system" for index in gone)
    for before, index in itertools.pairwise(spoken):
        if messages[index].role == "tool" and index not in gone:
            assert before not in gone


def stays(messages: list[Message], **fields: Any) -> int | None:
    request = GenerateRequest("x", messages=tuple(messages), **fields)
    prompts = PromptEncoder(FakeTokenizer(), CHAT_TEMPLATE)
    return n_keep_tokens(prompts, request, fit_prompt(prompts, request, 10_000))


def test_what_stays_of_a_shifted_context_is_what_was_asked_and_the_system_messages() -> None:
    messages = talk(2)
    kept = stays(messages, n_keep=4)
    assert kept is not None
    whole = fitted(messages, 10_000).tokens
    begin = b"".join(FakeTokenizer().piece(token) for token in whole[:kept]).decode()
    assert "Be kind." in begin
    assert "ask 0" not in begin
    assert stays(messages[1:], n_keep=4) == 4
    assert stays(messages, n_keep=kept + 5) == kept + 5
    assert stays(messages, n_keep=-1) == -1
    assert stays(messages) is None
