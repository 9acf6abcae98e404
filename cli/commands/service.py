"""hearth service: Start the daemon at login, with systemd or launchd."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.errors import CliError
from cli.terminal import status

if TYPE_CHECKING:
    from cli.service.manager import Service, ServiceManager
    from runner.settings import Settings

_SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_STOP_TIMEOUT_S = 60.0


def command(
    action: Annotated[
        Literal["install", "uninstall", "status", "print"],
        typer.Argument(metavar="[install|uninstall|status|print]", help="What to do"),
    ] = "status",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Start the daemon at login and restart it when it crashes, with systemd or launchd.

    The service gets the HEARTH_* variables of the current shell, except secrets; run install again
    after changing one. print shows the service file without installing it.
    """
    from cli.render import print_json
    from runner.settings import load

    settings, manager = load(), _find_manager()
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


def _find_manager() -> ServiceManager:
    """The service manager of this machine. Raises CliError where there is none."""
    if sys.platform == "darwin":
        from cli.service.launchd import Launchd

        return Launchd()
    if sys.platform.startswith("linux"):
        from cli.service.systemd import Systemd

        return Systemd()
    raise CliError(
        f"no service manager is supported on {sys.platform}; have your system run this command at "
        "login: hearth serve"
    )


def _service(settings: Settings) -> Service:
    from cli.daemon import COMMAND, absolute_paths
    from cli.service.manager import Service
    from runner.settings import describe

    known = [name for name, _, _ in describe()]
    given = {name: os.environ[name] for name in known if name in os.environ}
    kept = {name: value for name, value in given.items() if not _is_secret(name)}
    for name in sorted(given.keys() - kept.keys()):
        status(f"{name} is a secret and is not written into the service file")
    return Service(COMMAND, kept | absolute_paths(settings), settings.state_dir / "daemon.log")


def _is_secret(name: str) -> bool:
    return any(word in name.split("_") for word in _SECRETS)


def _install(manager: ServiceManager, settings: Settings) -> None:
    service = _service(settings)
    if not manager.state().running:
        _end_daemon(settings)
    manager.install(service)
    if manager.name == "systemd":
        status("to start it at boot, before you log in: loginctl enable-linger")


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

    client = new_client(settings)
    if not answers(client):  # daemon.json may be that of a dead one, its number another's
        return
    try:
        pid = int(json.loads((settings.state_dir / "daemon.json").read_bytes())["pid"])
        os.kill(pid, signal.SIGTERM)
    except (OSError, ValueError, LookupError, TypeError):
        raise CliError(
            f"the daemon at {settings.address.url} was not started by this user; stop it first"
        ) from None
    status(f"stopped the running daemon (process {pid})")
    if not wait_until(lambda: not _lives(pid), time.monotonic() + _STOP_TIMEOUT_S):
        raise CliError(
            f"the daemon (process {pid}) is still finishing requests; try again when it has stopped"
        )


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
