"""hearth service: Start the daemon automatically and add hearth to the desktop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.errors import USAGE, CliError
from cli.terminal import status

if TYPE_CHECKING:
    from cli.service.manager import Service, ServiceManager
    from runner.settings import Settings


def command(
    action: Annotated[
        Literal["install", "uninstall", "status", "print"],
        typer.Argument(metavar="[install|uninstall|status|print]", help="What to do"),
    ] = "status",
    tray: Annotated[
        bool,
        typer.Option("--tray", help="With install: also start hearth tray at login"),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Start the daemon automatically and add hearth to the desktop.

    systemd starts it with the first request after login; launchd and Task Scheduler start it at
    login. They restart it when it crashes. On Linux, hearth's page is added to the applications.

    The service gets the settings of the current shell, except the API key; run install again after
    changing a setting. print shows the service files without installing them.
    """
    from cli.render import print_json
    from cli.service.choice import find_manager
    from runner.settings import load

    settings, manager = load(), find_manager()
    if tray and action != "install":
        raise CliError("--tray is only for hearth service install", USAGE)
    if action == "print":
        print(manager.describe(_service(settings)), end="")
        return
    if action == "install":
        _install(manager, settings, tray)
    elif action == "uninstall":
        _uninstall(manager)
    found = manager.state()
    facts = {"manager": manager.name, "file": str(manager.path), "installed": found.installed,
             "running": found.pid is not None, "waiting": found.waiting,
             "pid": found.pid}  # fmt: skip
    if as_json:
        print_json(facts)
    elif not found.installed:
        print(f"no service is installed ({manager.name})")
    else:
        idle = "starts with the first request" if found.waiting else "not running"
        print(f"{manager.path}: {'running' if found.pid else idle}")


def _service(settings: Settings) -> Service:
    from cli.daemon import COMMAND, absolute_paths, log_file
    from cli.service.manager import Service
    from runner.settings import SECRETS, given, variable

    found = {variable(name): ways[0].text for name, ways in given().items() if not ways[0].in_file}
    for name in map(variable, SECRETS):
        if found.pop(name, None):
            status(f"{name} is a secret and is not written into the service file")
    addresses = (settings.address, *settings.listen)
    return Service(COMMAND, found | absolute_paths(settings), log_file(settings), addresses)


def _install(manager: ServiceManager, settings: Settings, tray: bool) -> None:
    from cli.connection import new_client
    from cli.daemon import end_daemon, process_of, running
    from cli.service import desktop
    from cli.tray import is_installed, require_tray

    if tray:
        require_tray()
    service, client = _service(settings), new_client(settings)
    manager.check(service)
    about = running(client)
    if about is not None and about["pid"] == manager.state().pid:
        about = None  # the service itself
    if about is not None:
        process_of(client, about)  # raises for one that cannot be ended
    manager.install(service)
    if desktop.has_entries():
        desktop.install_entry(service.environment)
    if tray:
        desktop.install_tray(service.environment)
    if about is not None:
        end_daemon(client, about)  # it holds the port and the store
    manager.start()
    if manager.name == "systemd":
        status("to start it at boot, before you log in: loginctl enable-linger")
    if is_installed() and not desktop.tray_path().exists():
        status("to show it in the tray after login: hearth service install --tray")


def _uninstall(manager: ServiceManager) -> None:
    from cli.service import desktop

    if not manager.path.exists():
        raise CliError(f"no service is installed: {manager.path} does not exist")
    desktop.remove_entry()
    manager.uninstall()
