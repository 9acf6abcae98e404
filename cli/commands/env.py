"""hearth env: Print the settings and the URLs for other programs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from runner.settings import Explained


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
    explained: Annotated[
        bool,
        typer.Option("--explain", help="Show where each value comes from and what it overrides"),
    ] = False,
) -> None:
    """Print the settings and the URLs for other programs. Does not start the daemon.

    For use in a shell: eval "$(hearth env)"
    """
    from cli.render import print_json
    from runner.settings import explain, load

    settings, rows = load(), explain()
    if explained:
        _explain(rows, as_json)
        return
    url = settings.address.reachable.url
    clients = {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "hearth",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": "hearth",
        "OLLAMA_HOST": url,
    }
    folders = {"models": str(settings.models_dir), "state": str(settings.state_dir)}
    if as_json:
        found = {row.variable: row for row in rows if row.source != "default"}
        values = {row.variable: row.value if row.variable in found else None for row in rows}
        sources = {name: row.source for name, row in found.items()}
        print_json({"clients": clients, "folders": folders, "settings": values, "sources": sources})
        return
    for name, value in clients.items():
        print(f"export {name}={shlex.quote(value)}")
    _comment(f"models: {folders['models']}")
    _comment(f"log and history: {folders['state']}")
    _comment("settings (variable, value, where it comes from, meaning):")
    for line in _columns([(row.variable, row.value, row.source, row.description) for row in rows]):
        _comment(f"  {line}")


def _explain(rows: tuple[Explained, ...], as_json: bool) -> None:
    from dataclasses import asdict

    from cli.render import print_json
    from runner.settings import config_path

    file = config_path()
    if as_json:
        print_json({"file": str(file), "settings": [asdict(row) for row in rows]})
        return
    print(f"{file}: {'read' if file.exists() else 'there is no such file'}")
    table = [("SETTING", "VALUE", "FROM", "OVERRIDES")]
    for row in rows:
        others = [f"{value or 'nothing'} ({source})" for source, value in row.overrides]
        table.append((row.name, row.value, row.source, ", ".join(others)))
    print(*map(_one_line, _columns(table)), sep="\n")


def _columns(table: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _comment(text: str) -> None:
    print(f"# {_one_line(text)}")  # a second line would be run by the shell
