"""hearth status: Show whether the daemon is running and which models are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.errors import NOT_RUNNING, USAGE, CliError

if TYPE_CHECKING:
    from runner.client import Client
    from runner.replies import JsonObject


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
    ready: Annotated[
        bool, typer.Option("--ready", help="Only check whether it takes requests (health checks)")
    ] = False,
) -> None:
    """Show whether the daemon is running and which models are loaded. Does not start it.

    The exit code is 0 if it is running (with --ready: if it takes requests), otherwise 3.
    """
    from cli.connection import new_client
    from cli.daemon import running
    from cli.render import print_json
    from runner.settings import load

    if ready and as_json:
        raise CliError("give --ready or --json, not both", USAGE)
    client = new_client(load())
    if ready:
        _say_ready(client)
        return
    about = running(client)
    facts = {"running": about is not None, "url": client.base_url}
    if about is not None:
        facts |= _facts(client, about)
    if as_json:
        print_json(facts)
    elif about is None:
        print(f"no daemon is running at {client.base_url}")
    else:
        _print(facts)
    if about is None:
        raise typer.Exit(NOT_RUNNING)


def _say_ready(client: Client) -> None:
    """Raises typer.Exit unless the daemon takes requests."""
    from cli.service.choice import waits_at
    from runner.client import DaemonUnreachable

    try:
        is_ready = not waits_at(client.base_url) and client.is_ready()
    except DaemonUnreachable:
        is_ready = False
    print(f"{client.base_url} is {'ready' if is_ready else 'not ready'}")
    if not is_ready:
        raise typer.Exit(NOT_RUNNING)


def _facts(client: Client, about: JsonObject) -> dict[str, Any]:
    from cli.daemon import process_of
    from cli.process import tree_rss_bytes
    from cli.service.choice import manager_of

    facts = {name: about.get(name) for name in ("pid", "uptime_s", "store", "log")}
    facts |= {
        "version": about["hearth"],
        "models": client.ps(),
        "memory_bytes": None,
        "service": None,
    }
    try:
        process_of(client, about)
    except CliError:
        return facts  # its number is another process's here
    manager = manager_of(about["pid"])
    facts["service"] = None if manager is None else manager.name
    facts["memory_bytes"] = tree_rss_bytes(about["pid"])
    return facts


def _print(facts: dict[str, Any]) -> None:
    from cli.render import size, span

    models = []
    for model in facts["models"]:
        sharer = model.get("shares_memory_of")
        memory = f"shares {sharer}'s memory" if sharer else size(model["size"])
        models.append(f"{model['name']} ({memory})")
    total, service = facts["memory_bytes"], facts["service"]
    for name, value in (
        ("running", facts["url"]),
        ("version", facts["version"]),
        ("process", f"{facts['pid']}, up {span(facts['uptime_s'])}"),
        ("service", service or "no"),
        ("models", ", ".join(models) or "none in memory"),
        ("memory", "unknown" if total is None else f"{size(total)} with all workers"),
        ("store", facts["store"]),
        ("log", facts["log"] or "where the daemon was started"),
    ):
        print(f"{name:<9}{value}")
