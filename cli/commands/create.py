"""hearth create: a model from a Modelfile."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.errors import Failure
from cli.terminal import status

if TYPE_CHECKING:
    from modelfile.ast import Command, Modelfile
    from runner.client import Client

_SUPPORTED = (
    *("from", "license", "template", "system", "parameter", "message"),
    *("renderer", "parser", "requires"),
)
_PATH_STARTS = ("/", "./", "../", "~", ".\\", "..\\")
_PATH_ENDS = (".gguf", ".safetensors", ".bin")


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new model")],
    file: Annotated[
        str, typer.Option("--file", "-f", metavar="PATH", help="The Modelfile; - reads stdin")
    ] = "Modelfile",
) -> None:
    """Make a model from a Modelfile.

    Paths after FROM are seen from the Modelfile's folder.
    """
    from cli.connection import connect

    modelfile = read(Path(file))
    folder = Path() if file == "-" else Path(file).parent
    body = description(modelfile, file)
    path = model_path(modelfile.sources[0], folder)
    with connect() as client:
        if path is None:
            body["from"] = modelfile.sources[0]
        else:
            _check_name(client, name)
            body["files"] = {path.name: store(client, path)}
        follow(client, body | {"model": name})
    print(f"created '{name}'")


def read(file: Path) -> Modelfile:
    """The parsed Modelfile. Raises Failure naming file, line and column."""
    from modelfile.errors import ModelfileError
    from modelfile.parser import decode, parse

    try:
        return parse(decode(_content(file)))
    except ModelfileError as error:
        raise Failure(f"{file}: {error.message}") from None


def _content(file: Path) -> bytes:
    from cli.upload import require_file
    from modelfile.parser import MAX_BYTES

    if str(file) == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        require_file(file)
    except FileNotFoundError:
        raise Failure(f"there is no file {file}; write a Modelfile or name it with -f") from None
    with file.open("rb") as content:
        return content.read(MAX_BYTES + 1)


def description(modelfile: Modelfile, file: str) -> dict[str, Any]:
    """What /api/create needs besides the weights. Raises Failure for what it cannot carry."""
    for command in modelfile.commands:
        if command.instruction not in _SUPPORTED:
            what = command.instruction.upper()
            raise Failure(f"{_place(file, command)}: {what} is not supported by this version yet")
    sources = [command for command in modelfile.commands if command.instruction == "from"]
    if len(sources) > 1:
        raise Failure(f"{_place(file, sources[1])}: only one FROM is supported by this version")
    fields: dict[str, Any] = {
        "template": modelfile.template,
        "system": modelfile.system,
        "license": list(modelfile.licenses) or None,
        "parameters": _parameters(modelfile, file) or None,
        "messages": [{"role": role, "content": text} for role, text in modelfile.messages] or None,
        "renderer": modelfile.last("renderer"),
        "parser": modelfile.last("parser"),
        "requires": modelfile.last("requires"),
    }
    return {field: value for field, value in fields.items() if value is not None}


def _parameters(modelfile: Modelfile, file: str) -> dict[str, Any]:
    from modelfile.errors import ModelfileError
    from modelfile.parameters import parse_value, warning

    values: dict[str, Any] = {}
    for command in modelfile.parameters:
        try:
            value = parse_value(command.name, command.value)
        except ModelfileError as error:
            raise Failure(f"{_place(file, command)}: {error.message}") from None
        if value is None:
            status(f"{_place(file, command)}: {warning(command.name)}")
        elif command.name == "stop":
            values["stop"] = [*values.get("stop", []), *value]
        else:
            values[command.name] = value
    return values


def _place(file: str, command: Command) -> str:
    return f"{file}: line {command.line}, column {command.column}"


def model_path(source: str, folder: Path) -> Path | None:
    """The file that FROM names; None when it names an installed model. Raises Failure."""
    from cli.upload import locate

    written_as_path = source.startswith(_PATH_STARTS) or source.lower().endswith(_PATH_ENDS)
    if written_as_path or source == "." or (folder / source).is_file():
        return locate(source, folder)
    return None


def _check_name(client: Client, name: str) -> None:
    """Have an impossible name refused before gigabytes are sent."""
    from runner.client import ClientError

    try:
        client.show(name)
    except ClientError as error:
        if error.code == "invalid_value":
            raise


def store(client: Client, path: Path) -> str:
    """Bring a file into the store, unless it is there; returns its digest."""
    from cli.progress import byte_bar
    from cli.upload import digest, send

    size_bytes = path.stat().st_size
    status(f"reading {path.name}")
    with byte_bar("reading", size_bytes) as advance:
        name = digest(path, advance)
    if client.has_blob(name):
        return name
    status(f"copying {path.name} into the store")
    with byte_bar("copying", size_bytes) as advance:
        send(client, path, name, advance)
    return name


def follow(client: Client, body: dict[str, Any]) -> None:
    """Have the model built, showing each step once."""
    shown = None
    for line in client.create(body):
        if line.get("status") != shown:
            shown = line.get("status")
            status(str(shown))
