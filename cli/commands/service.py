"""hearth service: Start the daemon at login, with systemd or launchd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.errors import CliError
from cli.terminal import status

if TYPE_CHECKING:
    from cli.service.manager import Service, ServiceManager
    from runner.settings import Settings


def command(
    action: Annotated[
        Literal["install", "uninstall", "status", "print"],
        typer.Argument(metavar="[install|uninstall|status|print]", help="What to do"),
    ] = "status",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Start the daemon at login and restart it when it crashes, with systemd or launchd.

    The service gets the settings of the current shell, except the API key; run install again after
    changing one. print shows the service file without installing it.
    """
    from cli.render import print_json
    from cli.service.choice import find_manager
    from runner.settings import load

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
             "running": found.pid is not None, "pid": found.pid}  # fmt: skip
    if as_json:
        print_json(facts)
    elif not found.installed:
        print(f"no service is installed ({manager.name})")
    else:
        print(f"{manager.path}: {'running' if found.pid else 'not running'}")


def _service(settings: Settings) -> Service:
    from cli.daemon import COMMAND, absolute_paths, log_file
    from cli.service.manager import Service
    from runner.settings import SECRETS, given, variable

    found = {variable(name): ways[0].text for name, ways in given().items() if not ways[0].in_file}
    for name in map(variable, SECRETS):
        if found.pop(name, None):
            status(f"{name} is a secret and is not written into the service file")
    return Service(COMMAND, found | absolute_paths(settings), log_file(settings))


def _install(manager: ServiceManager, settings: Settings) -> None:
    from cli.connection import new_client
    from cli.daemon import end_daemon, process_of, running

    service, client = _service(settings), new_client(settings)
    manager.check(service)
    about = running(client)
    if about is not None and about["pid"] == manager.state().pid:
        about = None  # the service itself
    if about is not None:
        process_of(client, about)  # raises for one that cannot be ended
    manager.install(service)
    if about is not None:
        end_daemon(client, about)  # it holds the port and the store
    manager.start()
    if manager.name == "systemd":
        status("to start it at boot, before you log in: loginctl enable-linger")


def _uninstall(manager: ServiceManager) -> None:
    if not manager.path.exists():
        raise CliError(f"no service is installed: {manager.path} does not exist")
    manager.uninstall()
