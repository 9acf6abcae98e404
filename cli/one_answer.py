"""The answer to one prompt, outside of a chat: text, JSON, or the vector of an embedding model."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from cli.answer import StreamedAnswer, print_timing, show_answer, writer
from cli.endings import is_cut, report_ending
from cli.errors import CUT, USAGE, CliError
from cli.prompt_images import extract_images
from cli.wrap import PlainWriter
from runner.client import ClientError

if TYPE_CHECKING:
    from collections.abc import Generator

    from cli.session import Session
    from runner.replies import ReplyChunk


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: what came from a pipe, and what was typed, in which pictures are looked for."""

    piped: str
    typed: str


def answer(session: Session, prompt: Prompt, as_json: bool) -> None:
    """Print the answer on stdout, and on stderr what cut it. Raises ClientError, CliError, and
    typer.Exit where a limit that nobody set has cut it."""
    typed, images = extract_images(session, prompt.typed)
    text = " ".join(part for part in (prompt.piped, typed) if part)
    out = PlainWriter(io.StringIO()) if as_json else writer(session.word_wrap)

    def show(chunks: Generator[ReplyChunk, None, None]) -> StreamedAnswer:
        return show_answer(chunks, out, session.show_thinking)

    try:
        if session.toolbox is None:
            given = show(session.complete(text, images))
        else:
            turns = session.asked(text, images)
            given, session.turns = session.toolbox.answered(turns, session.chat, show)
    except ClientError as error:
        if error.code != "unsupported" or session.can("completion"):
            raise
        _print_vector(session, text, as_json)
        return
    if given.stopped:
        raise KeyboardInterrupt
    print(_as_json(given) if as_json else "", flush=True)
    report_ending(session, given.last)
    if session.verbose:
        print("", file=sys.stderr)
        print_timing(given.last)
    if is_cut(given.last):
        raise typer.Exit(CUT)


def _as_json(given: StreamedAnswer) -> str:
    """The answer as /api/generate gives it without a stream; durations in nanoseconds."""
    whole = {**given.last, "response": given.text}
    if given.thought:
        whole["thinking"] = given.thought
    whole.pop("context", None)  # the tokens
    return json.dumps(whole, ensure_ascii=False)


def _print_vector(session: Session, text: str, as_json: bool) -> None:
    for name in ("system", "format", "think", "raw"):
        if getattr(session, name):
            raise CliError(
                f"{session.model} is an embedding model; --{name} cannot be used with it", USAGE
            )
    body = {"model": session.model, "input": text, "options": session.options, "truncate": False}
    if session.keep_alive is not None:
        body["keep_alive"] = session.keep_alive
    reply = session.client.embed(body)
    print(json.dumps(reply if as_json else reply["embeddings"][0], ensure_ascii=False))
