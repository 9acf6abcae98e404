"""Showing a streamed answer and its timings."""

from __future__ import annotations

import io
from collections.abc import Generator
from threading import Event

import pytest

from cli.answer import StreamedAnswer, timing_lines, writer
from cli.answer import show_answer as show_in
from runner.replies import ReplyChunk


def show_answer(chunks: Generator[ReplyChunk, None, None]) -> StreamedAnswer:
    return show_in(chunks, writer(word_wrap=True))


def stream(*chunks: ReplyChunk) -> Generator[ReplyChunk, None, None]:
    yield from chunks


def test_text_is_printed_and_returned_with_the_last_chunk(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = show_answer(stream({"response": "a\x1b"}, {"response": "b"}, {"done": True}))
    assert capsys.readouterr().out == "a\x1bb"
    assert answer.text == "a\x1bb"
    assert answer.last == {"done": True}


def test_chat_messages_are_printed_like_responses(capsys: pytest.CaptureFixture[str]) -> None:
    show_answer(stream({"message": {"role": "assistant", "content": "hi"}}, {"done": True}))
    assert capsys.readouterr().out == "hi"


def test_thinking_is_framed_and_not_part_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    answer = show_answer(
        stream({"thinking": "hm"}, {"thinking": "m"}, {"response": "yes"}, {"done": True})
    )
    assert capsys.readouterr().out == "Thinking...\nhmm\n...done thinking.\n\nyes"
    assert answer.text == "yes"


def test_an_interrupt_closes_the_stream_and_keeps_what_has_come(
    capsys: pytest.CaptureFixture[str],
) -> None:
    closed = []

    def interrupted() -> Generator[ReplyChunk, None, None]:
        try:
            yield {"response": "a"}
            raise KeyboardInterrupt
        finally:
            closed.append(True)

    answer = show_answer(interrupted())
    assert (answer.text, answer.stopped) == ("a", True)
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


def test_the_rate_of_a_prompt_is_that_of_the_tokens_that_were_computed() -> None:
    last: ReplyChunk = {
        "prompt_eval_count": 100,
        "cached_count": 90,
        "prompt_eval_duration": 500_000_000,
    }
    assert list(timing_lines(last)) == [
        "prompt eval count:    100 token(s)",
        "prompt cached:        90 token(s)",
        "prompt eval duration: 500ms",
        "prompt eval rate:     20.00 tokens/s",
    ]


def test_timings_that_are_absent_or_zero_are_left_out() -> None:
    assert list(timing_lines({"total_duration": 1_000, "eval_count": 0})) == [
        "total duration:       1µs"
    ]


def test_a_long_prompt_shows_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Event()

    class Screen(io.StringIO):
        """A terminal that tells when the progress has been drawn."""

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            if "reading the prompt: 2000 of 5000 tokens, 40%" in text:
                shown.set()
            return super().write(text)

    def answer() -> Generator[ReplyChunk, None, None]:
        yield {"prompt_progress": {"total": 5000, "cache": 0, "processed": 2000, "time_ms": 0}}
        assert shown.wait(10)
        yield {"response": "done", "done": True}

    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    assert show_answer(answer()).text == "done"
    assert screen.getvalue().endswith("\r\x1b[K")
