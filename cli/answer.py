"""Shows a streamed answer as it comes, and the timing lines after it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli.render import duration
from cli.spinner import Spinner
from cli.terminal import can_move, columns, is_terminal
from cli.wrap import PlainWriter, TerminalWriter, WrappingWriter

if TYPE_CHECKING:
    from collections.abc import Generator

    from runner.replies import ReplyChunk

_LABEL_WIDTH = 22


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """A complete answer: its text, and the last chunk with the counts and durations."""

    text: str
    last: ReplyChunk


def writer(word_wrap: bool) -> PlainWriter:
    """The writer that fits stdout."""
    if not is_terminal(sys.stdout):
        return PlainWriter(sys.stdout)
    if word_wrap and can_move(sys.stdout):
        return WrappingWriter(sys.stdout, columns() - 1)
    return TerminalWriter(sys.stdout)


def show_answer(
    chunks: Generator[ReplyChunk, None, None], word_wrap: bool, show_thinking: bool = True
) -> StreamedAnswer:
    """Print the chunks of one answer; a spinner turns until the first one that is shown.

    What ends it early (Ctrl-C, an error) closes chunks, which cancels the request, ends the line
    if one was begun, and is raised again.
    """
    out = writer(word_wrap)
    last: ReplyChunk = {}
    text = ""
    try:
        with closing(chunks), Spinner() as spinner:
            for last in chunks:
                text += _show_chunk(last, out, spinner, show_thinking)
    except BaseException:
        if out.used:
            out.write("\n")
        raise
    return StreamedAnswer(text, last)


def _show_chunk(chunk: ReplyChunk, out: PlainWriter, spinner: Spinner, show_thinking: bool) -> str:
    """Print one chunk; returns its part of the answer."""
    message = chunk.get("message") or {}
    text = chunk.get("response") or message.get("content") or ""
    thought = chunk.get("thinking") or message.get("thinking") or ""
    if not show_thinking:
        thought = ""
    if text or thought or chunk.get("done"):
        spinner.stop()
    out.show(thought, text)
    return text


def timing_lines(last: ReplyChunk) -> Iterable[str]:
    """What --verbose prints: the lines and the label width that users of Ollama know. Fields
    that are absent or zero are left out."""
    for name in ("total", "load"):
        if value := last.get(f"{name}_duration"):
            yield _row(f"{name} duration", duration(_whole(value)))
    for key, name in (("prompt_eval", "prompt eval"), ("eval", "eval")):
        count, spent_ns = _whole(last.get(f"{key}_count")), _whole(last.get(f"{key}_duration"))
        if count:
            yield _row(f"{name} count", f"{count} token(s)")
        if spent_ns:
            yield _row(f"{name} duration", duration(spent_ns))
            yield _row(f"{name} rate", f"{count / spent_ns * 1e9:.2f} tokens/s")


def print_timing(last: ReplyChunk) -> None:
    """The timing lines on stderr, after what stdout has shown."""
    sys.stdout.flush()
    for line in timing_lines(last):
        print(line, file=sys.stderr)
    sys.stderr.flush()


def _row(label: str, value: str) -> str:
    return f"{label + ':':<{_LABEL_WIDTH}}{value}"


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
