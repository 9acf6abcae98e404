"""hearth import: Import models from Ollama, LM Studio or Hugging Face without copying."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cli.errors import ERROR

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cli.progress import ProgressView

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
    from contextlib import closing
    from pathlib import Path

    from cli.connection import connect

    body: dict[str, Any] = {"source": program, "names": names or [], "copy": copy}
    body["dry_run"] = list_only
    if path:
        body["path"] = str(Path(path).expanduser().absolute())
    client = connect()
    with closing(client.import_models(body)) as lines:
        refused = _as_json(lines) if as_json else _shown(lines, list_only)
    if refused:
        raise typer.Exit(ERROR)


def _as_json(lines: Iterable[dict[str, Any]]) -> int:
    last: dict[str, Any] = {}
    for last in lines:
        print(json.dumps(last, ensure_ascii=False), flush=True)
    return int(last.get("refused", 0))


def _shown(lines: Iterable[dict[str, Any]], list_only: bool) -> int:
    """Show all lines; gives how many models were refused."""
    from cli.progress import style_for, view_for

    found: list[dict[str, Any]] = []
    view, last = view_for(style_for(as_json=False, quiet=False)), {}
    try:
        for last in lines:
            if "found" in last:
                found.append(last["found"])
            else:
                _step(last, view)
    finally:
        view.close()
    if list_only:
        _table(found)
    else:
        _summary(found, last)
    return int(last.get("refused", 0))


def _step(line: dict[str, Any], view: ProgressView) -> None:
    from runner.replies import TaskProgress

    result = line.get("imported")
    if isinstance(result, dict):
        name = result["model"]
        print(f"imported '{name}'" if result["imported"] else f"{name}: {result['reason']}")
    elif "note" in line:
        print(line["note"])
    elif "total" in line:
        view.show(TaskProgress(**line))  # type: ignore[typeddict-item]


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
