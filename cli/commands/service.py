"""hearth service: the daemon in the background from login on."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import USAGE, CliError
from cli.terminal import status

if TYPE_CHECKING:
    from cli.service.manager import Service, ServiceManager
    from runner.settings import Settings

_ACTIONS = ("install", "uninstall", "status", "print")
_SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_STOP_TIMEOUT_S = 60.0


def command(
    action: Annotated[
        str, typer.Argument(metavar="install|uninstall|status|print", help="What to do")
    ] = "status",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Start the daemon at login, and again when it dies, by systemd or launchd.

    The service has the HEARTH_* variables of the shell that installs it, without keys; run
    install again after changing one. print shows the service's file and changes nothing.
    """
    from cli.render import print_json
    from cli.service.manager import find_manager
    from runner.settings import load

    if action not in _ACTIONS:
        raise CliError(f"{action!r} is not one of {', '.join(_ACTIONS)}", USAGE)
    settings, manager = load(), find_manager()
    if action == "print":
        print(manager.describe(_service(settings)), end="")
        return
    if action == "install":
        _install(manager, settings)
    elif action == "uninstall":
        _uninstall(manager)
    found = manager.state()
    facts = {"manager": manager.name, "file": str(manager.path), "installed": found.installed,
             "running": found.running}  # fmt: skip
    if as_json:
        print_json(facts)
    elif not found.installed:
        print(f"no service is installed ({manager.name})")
    else:
        print(f"{manager.path}: {'running' if found.running else 'not running'}")


def _service(settings: Settings) -> Service:
    from cli.daemon import COMMAND, absolute_paths
    from cli.service.manager import Service
    from runner.settings import describe

    known = [name for name, _, _ in describe()]
    given = {name: os.environ[name] for name in known if name in os.environ}
    kept = {name: value for name, value in given.items() if not _is_secret(name)}
    for name in sorted(given.keys() - kept.keys()):
        status(f"{name} is not written into the service")
    return Service(COMMAND, kept | absolute_paths(settings), settings.state_dir / "daemon.log")


def _is_secret(name: str) -> bool:
    return any(word in name.split("_") for word in _SECRETS)


def _install(manager: ServiceManager, settings: Settings) -> None:
    service = _service(settings)
    if not manager.state().running:
        _end_daemon(settings)
    manager.install(service)
    if manager.name == "systemd":
        status("to have it run before you log in as well: loginctl enable-linger")


def _uninstall(manager: ServiceManager) -> None:
    if not manager.path.exists():
        raise CliError(f"no service is installed: {manager.path} does not exist")
    manager.uninstall()


def _end_daemon(settings: Settings) -> None:
    """Stop the daemon that a command started before: it holds the port and the store."""
    import json
    import time

    from cli.connection import new_client
    from cli.daemon import answers, wait_until

    with new_client(settings) as client:
        if not answers(client):  # daemon.json may be that of a dead one, its number another's
            return
    try:
        pid = int(json.loads((settings.state_dir / "daemon.json").read_bytes())["pid"])
        os.kill(pid, signal.SIGTERM)
    except (OSError, ValueError, LookupError, TypeError):
        raise CliError(
            f"a daemon answers at {settings.address.url} that was not started here: stop it first"
        ) from None
    status(f"stopped the daemon that was running (process {pid})")
    if not wait_until(lambda: not _lives(pid), time.monotonic() + _STOP_TIMEOUT_S):
        raise CliError(
            f"the daemon (process {pid}) still answers requests; try again when they have ended"
        )


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
