"""hearth run: Chat with a model, or answer one prompt."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.completion import assignments, installed_models
from cli.errors import USAGE, CliError
from cli.terminal import is_terminal
from cli.verb import VerbCommand

if TYPE_CHECKING:
    from cli.session import Session
    from runner.settings import Settings


class CommandClass(VerbCommand):
    """Reads a bare --think as --think=true: as in Ollama, it takes a value only after =."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments into ctx; returns what is left over."""
        end = args.index("--") if "--" in args else len(args)
        spelled = ["--think=true" if arg == "--think" else arg for arg in args[:end]]
        return super().parse_args(ctx, spelled + args[end:])


_ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        autocompletion=installed_models,
        help="Name of a model; it is pulled if it is not installed",
    ),
]
_PromptArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PROMPT]...", help='Without a prompt, a chat starts; "" only loads the model'
    ),
]
_ParameterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        "-p",
        metavar="NAME=VALUE",
        autocompletion=assignments,
        help="Parameter such as temperature=0.2; may be repeated",
    ),
]
_FormatOption = Annotated[
    str | None,
    typer.Option("--format", metavar="FORMAT", help="json, or a JSON schema the answer must match"),
]
_KeepaliveOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="How long the model stays loaded, such as 10m; -1: forever"),
]
_ThinkOption = Annotated[
    str | None, typer.Option(metavar="LEVEL", help="true, false, low, medium, high or max")
]
_HidethinkingOption = Annotated[
    bool, typer.Option("--hidethinking", help="Do not show the reasoning")
]
_VerboseOption = Annotated[bool, typer.Option("--verbose", help="Show timings after the answer")]
_NowordwrapOption = Annotated[bool, typer.Option("--nowordwrap", help="Do not wrap lines at words")]


def command(
    model: _ModelArgument,
    prompt: _PromptArgument = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="System message")] = None,
    parameter: _ParameterOption = None,
    format: _FormatOption = None,
    keepalive: _KeepaliveOption = None,
    think: _ThinkOption = None,
    hidethinking: _HidethinkingOption = False,
    verbose: _VerboseOption = False,
    nowordwrap: _NowordwrapOption = False,
) -> None:
    """Chat with a model, or answer one prompt.

    Piped text is put before the prompt: cat notes.txt | hearth run ember "Sum this up"

    Image files named in the prompt are sent to the model: hearth run MODEL "what is in ./cat.png?"
    """
    from cli.connection import connect
    from cli.parameters import parse_assignments
    from cli.progress import is_to_be_pulled, pull_missing
    from cli.session import Session
    from runner.settings import load

    _check_duration(keepalive)
    options = parse_assignments(parameter) if parameter else {}
    form = _format(format)
    given = _prompt(prompt or [])
    settings = load()
    session = Session(
        connect(settings),
        model,
        system=system,
        options=options,
        format=form,
        keep_alive=keepalive,
        word_wrap=not nowordwrap,
        verbose=verbose,
        think=_think_value(think),
        show_thinking=not hidethinking,
    )
    from runner.client import ClientError

    try:
        _begin(session, given, settings)
    except ClientError as error:
        if not is_to_be_pulled(error, model):
            raise
        session.model = pull_missing(session.client, model, error)
        _begin(session, given, settings)


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt: what came from a pipe, and what was typed, in which pictures are looked for."""

    piped: str
    typed: str


def _begin(session: Session, prompt: _Prompt | None, settings: Settings) -> None:
    if prompt is None:
        _chat(session, settings)
    elif not (prompt.piped or prompt.typed):
        session.client.load(session.model, session.keep_alive)
    else:
        _answer(session, prompt)


def _prompt(words: list[str]) -> _Prompt | None:
    """The prompt from a pipe and the command line; None: there is a person to ask."""
    piped = None if is_terminal(sys.stdin) else _read_pipe()
    typed = " ".join(words)
    if piped or words:
        return _Prompt(_checked(piped or ""), _checked(typed))
    if piped is None and is_terminal(sys.stdout):
        return None
    raise CliError('no prompt: write one, or "" to only load the model', USAGE)


def _read_pipe() -> str:
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise CliError(
            f"the piped text is not UTF-8: byte 0x{data[error.start]:02x} at position "
            f"{error.start}. Convert it first, for example with iconv"
        ) from None


def _checked(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CliError(f"the prompt is not UTF-8 at character {error.start}", USAGE) from None
    return text


def _format(text: str | None) -> Any:
    if text is None or text == "json":
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise CliError(f"--format must be json or a JSON schema: {error}", USAGE) from None


def _think_value(text: str | None) -> bool | str | None:
    return {"true": True, "false": False}.get(text, text) if text is not None else None


def _check_duration(text: str | None) -> None:
    from runner.settings import parse_duration

    try:
        parse_duration(text or "0")
    except ValueError as error:
        raise CliError(f"--keepalive {text} is invalid: {error}", USAGE) from None


def _answer(session: Session, prompt: _Prompt) -> None:
    from cli.answer import print_timing, show_answer
    from cli.prompt_images import extract_images

    typed, images = extract_images(session, prompt.typed)
    text = " ".join(part for part in (prompt.piped, typed) if part)
    chunks = session.complete(text, images)
    answer = show_answer(chunks, session.word_wrap, session.show_thinking)
    sys.stdout.write("\n")
    if session.verbose:
        print("", file=sys.stderr)
        print_timing(answer.last)


def _chat(session: Session, settings: Settings) -> None:
    from cli.repl import chat
    from cli.spinner import Spinner

    with Spinner(f"loading {session.model}"):
        session.client.load(session.model, session.keep_alive)
    chat(session, _history_file(settings))


def _history_file(settings: Settings) -> Path | None:
    return None if settings.nohistory else settings.state_dir / "history"
