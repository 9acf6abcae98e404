"""hearth render: Print the prompt that a conversation renders to.

With --template no daemon is needed; otherwise the daemon loads the model and renders.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cli.completion import installed_models
from cli.errors import USAGE, CliError

MAX_FILE_BYTES = 16 * 1024 * 1024


def command(
    messages: Annotated[
        Path, typer.Option(metavar="FILE", help="JSON list of messages; - reads it from stdin")
    ],
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]", autocompletion=installed_models, help="Name of an installed model"
        ),
    ] = None,
    template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Template to use instead of a model's")
    ] = None,
    engine: Annotated[
        Literal["go", "jinja"] | None,
        typer.Option(metavar="go|jinja", help="Language of --template"),
    ] = None,
    bos: Annotated[str | None, typer.Option(metavar="TEXT", help="Text of bos_token")] = None,
    eos: Annotated[str | None, typer.Option(metavar="TEXT", help="Text of eos_token")] = None,
    tools: Annotated[Path | None, typer.Option(metavar="FILE", help="JSON list of tools")] = None,
    no_prompt: Annotated[
        bool, typer.Option("--no-prompt", help="Do not add the generation prompt (Jinja templates)")
    ] = False,
) -> None:
    """Print the prompt that a conversation renders to."""
    if (model is None) == (template is None):
        raise CliError("give either MODEL or --template FILE", USAGE)
    if model is not None and (engine, bos, eos) != (None, None, None):
        raise CliError("--engine, --bos and --eos need --template; a model has its own", USAGE)
    body: dict[str, Any] = {"messages": _list_of_objects(messages, "--messages", "messages")}
    if tools is not None:
        body["tools"] = _list_of_objects(tools, "--tools", "tools")
    body["add_generation_prompt"] = not no_prompt
    if template is not None:
        prompt = _local(template, engine, (bos, eos), body)
    else:
        from cli.connection import connect

        prompt = connect().apply_template({**body, "model": model})
    sys.stdout.flush()
    sys.stdout.buffer.write(prompt.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


def _local(
    path: Path, engine: str | None, tokens: tuple[str | None, str | None], body: dict[str, Any]
) -> str:
    """Render the template of a file in this process. Raises CliError."""
    from modelfile.errors import TemplateError
    from modelfile.templates.chat_template import refuse_dropped
    from modelfile.templates.named import compile_file

    source = _read(path, "--template")
    try:
        compiled = compile_file(source, *tokens, engine=engine)
        optional = compiled.capabilities.optional_generation_prompt
        if not (optional or body["add_generation_prompt"]):
            raise CliError(
                "--no-prompt needs a Jinja template; Go templates always add the generation prompt",
                USAGE,
            )
        messages = body["messages"]
        tools = body.get("tools")
        defaults = compiled.defaults(tools)
        prompt = compiled.render(messages, tools, body["add_generation_prompt"], **defaults)
        refuse_dropped(messages, prompt)
        return prompt
    except TemplateError as error:
        raise CliError(f"{path}: {error.message}") from None


def _list_of_objects(path: Path, option: str, what: str) -> list[dict[str, Any]]:
    text = _read(path, option)
    try:
        value = json.loads(text)
    except ValueError as error:
        raise CliError(f"{option} {path}: not JSON: {error}") from None
    except RecursionError:
        raise CliError(f"{option} {path}: the JSON is nested too deeply") from None
    if isinstance(value, dict) and isinstance(value.get(what), list):
        value = value[what]
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise CliError(f"{option} {path}: expected a JSON list of {what}")
    return value


def _read(path: Path, option: str) -> str:
    """The text of a file. Raises CliError."""
    if str(path) == "-":
        data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    else:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise CliError(f"{option} {path}: larger than {MAX_FILE_BYTES} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CliError(f"{option} {path}: not UTF-8 at byte {error.start}") from None
