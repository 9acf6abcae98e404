"""Showing a streamed answer and its timings."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from cli.answer import show_answer, timing_lines
from runner.replies import ReplyChunk


def stream(*chunks: ReplyChunk) -> Generator[ReplyChunk, None, None]:
    yield from chunks


def test_text_is_printed_and_returned_with_the_last_chunk(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = show_answer(stream({"response": "a\x1b"}, {"response": "b"}, {"done": True}), True)
    assert capsys.readouterr().out == "a\x1bb"
    assert answer.text == "a\x1bb"
    assert answer.last == {"done": True}


def test_chat_messages_are_printed_like_responses(capsys: pytest.CaptureFixture[str]) -> None:
    show_answer(stream({"message": {"role": "assistant", "content": "hi"}}, {"done": True}), True)
    assert capsys.readouterr().out == "hi"


def test_thinking_is_framed_and_not_part_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    answer = show_answer(
        stream({"thinking": "hm"}, {"thinking": "m"}, {"response": "yes"}, {"done": True}), True
    )
    assert capsys.readouterr().out == "Thinking...\nhmm\n...done thinking.\n\nyes"
    assert answer.text == "yes"


def test_an_interrupt_closes_the_stream_and_ends_the_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    closed = []

    def interrupted() -> Generator[ReplyChunk, None, None]:
        try:
            yield {"response": "a"}
            raise KeyboardInterrupt
        finally:
            closed.append(True)

    with pytest.raises(KeyboardInterrupt):
        show_answer(interrupted(), True)
    assert closed == [True]
    assert capsys.readouterr().out == "a\n"


def test_the_timing_lines_are_those_of_ollama() -> None:
    last: ReplyChunk = {
        "total_duration": 2_500_000_000,
        "load_duration": 1_000_000,
        "prompt_eval_count": 10,
        "prompt_eval_duration": 500_000_000,
        "eval_count": 30,
        "eval_duration": 1_500_000_000,
    }
    assert list(timing_lines(last)) == [
        "total duration:       2.5s",
        "load duration:        1ms",
        "prompt eval count:    10 token(s)",
        "prompt eval duration: 500ms",
        "prompt eval rate:     20.00 tokens/s",
        "eval count:           30 token(s)",
        "eval duration:        1.5s",
        "eval rate:            20.00 tokens/s",
    ]


def test_timings_that_are_absent_or_zero_are_left_out() -> None:
    assert list(timing_lines({"total_duration": 1_000, "eval_count": 0})) == [
        "total duration:       1µs"
    ]
