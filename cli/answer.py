"""Shows a streamed answer as it comes, and the timing lines after it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from cli.render import duration
from cli.spinner import Spinner
from cli.terminal import can_move, columns, is_terminal
from cli.wrap import PlainWriter, TerminalWriter, WrappingWriter

if TYPE_CHECKING:
    from collections.abc import Generator

    from runner.replies import OllamaMessage, PromptProgressReply, ReplyChunk

_LABEL_WIDTH = 22


@dataclass(slots=True)
class StreamedAnswer:
    """An answer: its text, its reasoning, its calls of tools, and the last chunk with the counts
    and durations. stopped: by Ctrl-C, before its end."""

    text: str = ""
    thought: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    last: ReplyChunk = field(default_factory=lambda: cast("ReplyChunk", {}))
    stopped: bool = False


def writer(word_wrap: bool) -> PlainWriter:
    """The writer that fits stdout."""
    if not is_terminal(sys.stdout):
        return PlainWriter(sys.stdout)
    if word_wrap and can_move(sys.stdout):
        return WrappingWriter(sys.stdout, columns() - 1)
    return TerminalWriter(sys.stdout)


def show_answer(
    chunks: Generator[ReplyChunk, None, None], out: PlainWriter, show_thinking: bool = True
) -> StreamedAnswer:
    """Print the chunks of one answer; a spinner turns until the first one that is shown, and says
    how far a long prompt is.

    Ctrl-C ends it, and what has come so far is the answer. An error is raised again. Both close
    chunks, which cancels the request, and end the line if one was begun.
    """
    answer = StreamedAnswer()
    try:
        with closing(chunks), Spinner() as spinner:
            for answer.last in chunks:
                _show_chunk(answer, out, spinner, show_thinking)
    except BaseException as error:
        if out.used:
            out.write("\n")
        if not isinstance(error, KeyboardInterrupt):
            raise
        answer.stopped = True
    return answer


def _show_chunk(
    answer: StreamedAnswer, out: PlainWriter, spinner: Spinner, show_thinking: bool
) -> None:
    chunk = answer.last
    message: OllamaMessage = chunk.get("message") or {"role": "", "content": ""}
    text = chunk.get("response") or message["content"]
    thought = chunk.get("thinking") or message.get("thinking") or ""
    if (progress := chunk.get("prompt_progress")) is not None:
        spinner.update(_progress_text(progress))
    answer.calls += message.get("tool_calls") or ()
    shown = thought if show_thinking else ""
    if text or shown or chunk.get("done"):
        spinner.stop()
    out.show(shown, text)
    answer.text += text
    answer.thought += thought


def _progress_text(progress: PromptProgressReply) -> str:
    """How far a prompt is: "reading the prompt: 1024 of 5558 tokens, 18%"."""
    total, done = progress["total"], progress["processed"]
    return f"reading the prompt: {done} of {total} tokens, {100 * done // max(total, 1)}%"


def timing_lines(last: ReplyChunk) -> Iterable[str]:
    """What --verbose prints: the lines and the label width that users of Ollama know, and how
    much of the prompt was cached. The prompt's rate is that of the tokens that were computed.
    Fields that are absent or zero are left out."""
    for name in ("total", "load"):
        if value := last.get(f"{name}_duration"):
            yield _row(f"{name} duration", duration(_whole(value)))
    cached = _whole(last.get("cached_count"))
    for key, name, not_computed in (("prompt_eval", "prompt eval", cached), ("eval", "eval", 0)):
        count, spent_ns = _whole(last.get(f"{key}_count")), _whole(last.get(f"{key}_duration"))
        if count:
            yield _row(f"{name} count", f"{count} token(s)")
        if not_computed:
            yield _row("prompt cached", f"{not_computed} token(s)")
        if spent_ns:
            yield _row(f"{name} duration", duration(spent_ns))
            rate = max(count - not_computed, 0) / spent_ns * 1e9
            yield _row(f"{name} rate", f"{rate:.2f} tokens/s")


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
