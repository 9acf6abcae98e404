"""hearth run: Chat with a model, or answer one prompt."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.completion import assignments, installed_models
from cli.errors import USAGE, CliError
from cli.terminal import is_terminal
from cli.verb import VerbCommand

if TYPE_CHECKING:
    from cli.one_answer import Prompt
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
        help="Name of a model (pulled if it is not installed), or path of a GGUF file or a "
        "safetensors folder",
    ),
]
_PromptArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PROMPT]...", help='Without a prompt, a chat begins; "" only loads the model'
    ),
]
_ParameterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        "-p",
        metavar="NAME=VALUE",
        autocompletion=assignments,
        help="Set a parameter, such as temperature=0.2; may be repeated",
    ),
]
_SeedOption = Annotated[
    str | None,
    typer.Option(metavar="N", help="Same as -p seed=N: the same seed gives the same answer"),
]
_TemperatureOption = Annotated[
    str | None,
    typer.Option(metavar="X", help="Same as -p temperature=X: 0 always takes the top token"),
]
_DevicesOption = Annotated[
    str | None,
    typer.Option(metavar="N,N", help="Same as -p devices=N for each: GPUs for a split model"),
]
_RawOption = Annotated[
    bool,
    typer.Option("--raw", help="Send the prompt as it is, without a chat template"),
]
_JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the answer, token counts and durations as JSON")
]
_FormatOption = Annotated[
    str | None,
    typer.Option("--format", metavar="FORMAT", help="json, or a JSON schema the answer must match"),
]
_QuantizeOption = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        help="Same as -p quantize=TYPE: quantize float weights to int8, int4 or fp8 while loading",
    ),
]
_KeepaliveOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="How long the model stays loaded, such as 10m; -1: forever"),
]
_ThinkOption = Annotated[
    str | None,
    typer.Option(metavar="LEVEL", help="Reasoning: true, false, low, medium, high or max"),
]
_HidethinkingOption = Annotated[
    bool, typer.Option("--hidethinking", help="Do not show the reasoning")
]
_VerboseOption = Annotated[bool, typer.Option("--verbose", help="Show timings after the answer")]
_McpOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mcp",
        metavar="NAME",
        help="Let the model call this MCP server's tools (see `hearth mcp`); may be repeated",
    ),
]
_NowordwrapOption = Annotated[bool, typer.Option("--nowordwrap", help="Do not wrap lines at words")]


def command(
    model: _ModelArgument,
    prompt: _PromptArgument = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="System message")] = None,
    parameter: _ParameterOption = None,
    seed: _SeedOption = None,
    temperature: _TemperatureOption = None,
    quantize: _QuantizeOption = None,
    devices: _DevicesOption = None,
    format: _FormatOption = None,
    keepalive: _KeepaliveOption = None,
    think: _ThinkOption = None,
    hidethinking: _HidethinkingOption = False,
    raw: _RawOption = False,
    as_json: _JsonOption = False,
    verbose: _VerboseOption = False,
    nowordwrap: _NowordwrapOption = False,
    mcp: _McpOption = None,
) -> None:
    """Chat with a model, or answer one prompt.

    Piped text is put before the prompt: cat notes.txt | hearth run ember "Sum this up"

    Image files named in the prompt are sent to the model: hearth run MODEL "what is in ./cat.png?"

    An embedding model prints the vector of the prompt. Exit code 4 means that the answer was cut
    off by a limit that you did not set, such as a full context.
    """
    from cli.connection import connect
    from cli.local_models import is_path, model_of_path
    from cli.parameters import parse_assignments, think_value
    from cli.session import Session
    from cli.terminal import can_move
    from runner.settings import load

    _check_duration(keepalive)
    if raw and (system or mcp):
        raise CliError("--raw sends only the prompt; leave out --system and --mcp", USAGE)
    sugar = (("seed", seed), ("temperature", temperature), ("quantize", quantize))
    named = [f"{name}={value}" for name, value in sugar if value is not None]
    named += [f"devices={number}" for number in (devices.split(",") if devices else ())]
    session_settings: dict[str, Any] = {
        "system": system,
        "options": parse_assignments([*(parameter or []), *named]),
        "format": _format(format),
        "keep_alive": keepalive,
        "word_wrap": not nowordwrap,
        "verbose": verbose,
        "think": None if think is None else think_value(think),
        "show_thinking": not hidethinking,
        "raw": raw,
        "progress": can_move(sys.stderr),
    }
    given = _prompt(prompt or [], raw, as_json)
    settings = load()
    client = connect(settings)
    name = model_of_path(client, model) if is_path(model) else model  # that of a file is made
    session = Session(client, name, **session_settings)
    _offer_tools(session, mcp)
    _with_model(session, lambda: _begin(session, given, settings, as_json))


def _offer_tools(session: Session, servers: list[str] | None) -> None:
    if servers:
        from cli.tool_calls import Toolbox, person

        session.toolbox = Toolbox.of(session.client, servers, person())


def _with_model(session: Session, use: Callable[[], None]) -> None:
    """Use the session's model; one that is not installed is pulled."""
    from cli.progress import is_to_be_pulled, pull_missing
    from runner.client import ClientError

    try:
        use()
    except ClientError as error:
        if not is_to_be_pulled(error, session.model):
            raise
        session.model = pull_missing(session.client, session.model, error)
        use()


def _begin(session: Session, prompt: Prompt | None, settings: Settings, as_json: bool) -> None:
    from cli.endings import report_ending

    if prompt is None:
        _chat(session, settings)
    elif not (prompt.piped or prompt.typed):
        report_ending(session, session.load())
    else:
        from cli.one_answer import answer

        answer(session, prompt, as_json)


def _prompt(words: list[str], raw: bool, needed: bool) -> Prompt | None:
    """The prompt from a pipe, without the space around it unless raw, and the command line; None:
    there is a person to ask."""
    from cli.one_answer import Prompt

    piped = None if is_terminal(sys.stdin) else _read_pipe()
    if piped is not None and not raw:
        piped = piped.strip()
    typed = " ".join(words)
    if piped or words:
        return Prompt(_checked(piped or ""), _checked(typed))
    if piped is None and is_terminal(sys.stdout) and not needed:
        return None
    raise CliError('no prompt: write one, or "" to only load the model', USAGE)


def _read_pipe() -> str:
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8-sig")
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


def _check_duration(text: str | None) -> None:
    from runner.setting_values import parse_duration

    try:
        parse_duration(text or "0")
    except ValueError as error:
        raise CliError(f"--keepalive {text} is invalid: {error}", USAGE) from None


def _chat(session: Session, settings: Settings) -> None:
    from cli.chat_start import chat_model
    from cli.endings import report_ending
    from cli.repl import chat
    from cli.spinner import Spinner

    with Spinner(f"loading {session.model}"):
        shown = chat_model(session.client, session.model)
        loaded = session.load()
    report_ending(session, loaded)
    chat(session, shown, None if settings.nohistory else settings.state_dir / "history")
