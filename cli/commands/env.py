"""hearth env: Print the settings and the URLs for other programs."""

from __future__ import annotations

import os
import shlex
from typing import Annotated

import typer


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Print the settings and the URLs for other programs. Does not start the daemon.

    For use in a shell: eval "$(hearth env)"
    """
    from cli.connection import reachable
    from cli.render import print_json
    from runner.settings import load

    settings = load()
    url = reachable(settings.address).url
    clients = {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "hearth",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": "hearth",
        "OLLAMA_HOST": url,
    }
    folders = {"models": str(settings.models_dir), "state": str(settings.state_dir)}
    if as_json:
        print_json({"clients": clients, "folders": folders, "settings": _values()})
        return
    for name, value in clients.items():
        print(f"export {name}={shlex.quote(value)}")
    _comment(f"models: {folders['models']}")
    _comment(f"log and history: {folders['state']}")
    _print_settings()


def _print_settings() -> None:
    from runner.settings import describe

    now = _values()
    rows = [(name, now[name] or _plain(default), doc) for name, doc, default in describe()]
    name_width = max(len(name) for name, _, _ in rows)
    value_width = max(len(value) for _, value, _ in rows)
    _comment("settings (variable, value, meaning):")
    for name, value, doc in rows:
        _comment(f"  {name:<{name_width}}  {value:<{value_width}}  {doc}")


def _comment(text: str) -> None:
    print("# " + " ".join(text.splitlines()))  # a second line would be run by the shell


def _plain(default: str) -> str:
    """A default as one would write it into the environment."""
    return {"False": "0", "True": "1", "()": ""}.get(default, default.removesuffix(".0"))


def _values() -> dict[str, str | None]:
    from runner.settings import describe

    return {name: os.environ.get(name) for name, _, _ in describe()}
