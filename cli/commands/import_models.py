"""hearth import: Import models from Ollama, LM Studio or Hugging Face without copying."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

import typer

from cli.errors import ERROR

_HEADER = ("NAME", "SIZE", "STATE")


def command(
    program: Annotated[
        Literal["ollama", "lmstudio", "hf"],
        typer.Argument(metavar="ollama|lmstudio|hf", help="hf: Hugging Face"),
    ],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAMES]...", help="Models to import; all by default"),
    ] = None,
    path: Annotated[
        str, typer.Option(metavar="DIR", help="Where the program stores its models")
    ] = "",
    list_only: Annotated[
        bool, typer.Option("--list", help="List the models without importing them")
    ] = False,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy files that cannot be linked; this takes disk space")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line")] = False,
) -> None:
    """Import models from another program without copying: both programs use the same files.

    Every file is read once and verified. The other program keeps its models.
    """
    from pathlib import Path

    from cli.connection import connect
    from cli.progress import follow, style_for

    body: dict[str, Any] = {"source": program, "names": names or [], "copy": copy}
    body["dry_run"] = list_only
    if path:
        body["path"] = str(Path(path).expanduser().absolute())
    found: list[dict[str, Any]] = []
    tell = partial(_tell, found)
    last = follow(connect().import_models(body), style_for(as_json, quiet=False), tell)
    if list_only and not as_json:
        _table(found)
    elif not as_json:
        _summary(found, last)
    if last.get("refused"):
        raise typer.Exit(ERROR)


def _tell(found: list[dict[str, Any]], line: dict[str, Any]) -> bool:
    """found gets what there is."""
    result = line.get("imported")
    if "found" in line:
        found.append(line["found"])
    elif isinstance(result, dict):
        name = result["model"]
        print(f"imported '{name}'" if result["imported"] else f"{name}: {result['reason']}")
    elif "note" in line:
        print(line["note"])
    return "total" not in line


def _table(found: list[dict[str, Any]]) -> None:
    from cli.render import print_table, size

    words = {"new": "ready to import", "present": "already installed"}
    rows = [
        (item["model"], size(item["size"]), words.get(item["state"]) or str(item["reason"]))
        for item in found
    ]
    print_table(_HEADER, rows)


def _summary(found: list[dict[str, Any]], last: dict[str, Any]) -> None:
    from cli.render import size

    for item in found:
        if item["state"] == "blocked":
            print(f"{item['model']}: {item['reason']}")
    present = sum(item["state"] == "present" for item in found)
    if found and present == len(found):
        print(f"nothing to do: {present} of {len(found)} models are installed already")
        return
    text = f"{last['taken']} of {len(found)} models imported, {size(last['linked_bytes'])} linked"
    if last["copied_bytes"]:
        text += f", {size(last['copied_bytes'])} copied"
    print(text + (f"; {present} were installed already" if present else ""))
