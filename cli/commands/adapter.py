"""hearth adapter: Add, list and remove LoRA adapters of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cli.completion import installed_models
from cli.errors import USAGE, CliError

if TYPE_CHECKING:
    from runner.client import Client

_HEADER = ("NAME", "MODEL", "ID", "SIZE")
_DEFAULT_TAG = "latest"

_ModelArgument = Annotated[
    str,
    typer.Argument(metavar="[MODEL]", autocompletion=installed_models, help="The model to adapt"),
]
_ScaleOption = Annotated[
    float | None, typer.Option(metavar="FACTOR", help="Strength of the adapter; 1 by default")
]


def command(
    action: Annotated[
        Literal["add", "list", "remove"],
        typer.Argument(metavar="[add|list|remove]", help="What to do"),
    ] = "list",
    model: _ModelArgument = "",
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the adapter")] = "",
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[PATH]", help="A GGUF file or a PEFT folder"),
    ] = None,
    scale: _ScaleOption = None,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy files into the store instead of linking them")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Add, list and remove LoRA adapters of a model.

    An adapter becomes a model with its own name: poet of ember is ember:poet, and poet of ember:q4
    is ember:q4-poet. A NAME with a colon is used as it is. One worker serves MODEL and all of its
    adapters.
    """
    from cli.connection import connect

    if action != "list" and not (model and name):
        raise CliError(
            f"hearth adapter {action} needs the names of a model and of an adapter", USAGE
        )
    if action == "add" and path is None:
        raise CliError("hearth adapter add needs a path: hearth adapter add MODEL NAME PATH", USAGE)
    if action == "list":
        _list(connect(), model, as_json)
        return
    adapted = adapted_name(model, name)
    if action == "remove":
        client = connect()
        _check_parent(client, adapted, model)
        client.delete(adapted)
        print(f"removed '{adapted}'")
    elif path is not None:
        _add(connect(), model, adapted, (path, scale), copy, as_json)
        if not as_json:
            print(f"added '{adapted}'")


def adapted_name(model: str, name: str) -> str:
    """What a model with an adapter is called."""
    if ":" in name or "/" in name:
        return name
    stem, colon, tag = model.rpartition(":")
    if not colon or "/" in tag:
        return f"{model}:{name}"
    return f"{stem}:{name}" if tag.lower() == _DEFAULT_TAG else f"{stem}:{tag}-{name}"


def _add(
    client: Client,
    model: str,
    adapted: str,
    adapter: tuple[Path, float | None],
    copy: bool,
    as_json: bool,
) -> None:
    """adapter: its files and its scale."""
    from cli.sources import find
    from cli.upload import uploader

    path, scale = adapter
    files = find(str(path.absolute()), Path(), "ADAPTER") or {}
    shown = client.show(model)
    if parent := _parent(shown):
        raise CliError(f"{model} is {parent} with an adapter; add this one to {parent}")
    if any(_is_named(entry, adapted) for entry in client.tags()):
        _check_parent(client, adapted, model)  # it is replaced
    body: dict[str, Any] = {"model": adapted, "from": model}
    if scale is not None:
        body["parameters"] = {"lora_scale": scale}
    with uploader(client, copy, as_json) as delivery:
        delivery.create(body | {"adapters": delivery.bring_all(files)})


def _check_parent(client: Client, adapted: str, model: str) -> None:
    """Raises CliError unless a model is the other one with an adapter."""
    shown = client.show(adapted)
    if not _parent(shown) or shown.get("weights") != client.show(model).get("weights"):
        raise CliError(f"{adapted} is another model, not an adapter of {model}; use another name")


def _list(client: Client, model: str, as_json: bool) -> None:
    from cli.render import print_json, print_table, short_digest, size

    wanted = client.show(model).get("adapters", []) if model else None
    found = [
        entry
        for entry in client.tags()
        if _parent(entry) and (wanted is None or any(_is_named(entry, name) for name in wanted))
    ]
    if as_json:
        print_json({"adapters": found})
        return
    rows = [
        (entry["name"], _parent(entry), short_digest(entry.get("digest")), size(entry["size"]))
        for entry in found
    ]
    print_table(_HEADER, rows)


def _parent(shown: Any) -> str:
    return str((shown.get("details") or {}).get("parent_model") or "")


def _is_named(entry: Any, name: str) -> bool:
    whole = name if ":" in name.rpartition("/")[2] else f"{name}:{_DEFAULT_TAG}"
    return str(entry["name"]).lower() == whole.lower()
