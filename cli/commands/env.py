"""hearth env: Print the settings and the URLs for other programs."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

_HIDDEN = "(set, not shown)"


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Print the settings and the URLs for other programs. Does not start the daemon.

    For use in a shell: eval "$(hearth env)"
    """
    from cli.render import print_json
    from runner.settings import SECRETS, describe, load, set_variables

    settings = load()
    url = settings.address.reachable.url
    clients = {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "hearth",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": "hearth",
        "OLLAMA_HOST": url,
    }
    folders = {"models": str(settings.models_dir), "state": str(settings.state_dir)}
    found, rows = set_variables(), describe()
    for name in SECRETS & found.keys():
        found[name] = (found[name][0], _HIDDEN)
    if as_json:
        values = {name: found.get(name, (None, None))[1] for name, _, _ in rows}
        sources = {name: source for name, (source, _) in found.items()}
        print_json({"clients": clients, "folders": folders, "settings": values, "sources": sources})
        return
    for name, value in clients.items():
        print(f"export {name}={shlex.quote(value)}")
    _comment(f"models: {folders['models']}")
    _comment(f"log and history: {folders['state']}")
    _comment("settings (variable, value, where it comes from, meaning):")
    table = []
    for name, doc, default in rows:
        source, value = found.get(name, ("default", _plain(default)))
        table.append((name, value, source, doc))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        _comment(f"  {'  '.join(cells).rstrip()}")


def _comment(text: str) -> None:
    print("# " + " ".join(text.splitlines()))  # a second line would be run by the shell


def _plain(default: str) -> str:
    """A default as one would write it into the environment."""
    return {"False": "0", "True": "1", "()": ""}.get(default, default.removesuffix(".0"))
