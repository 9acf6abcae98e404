"""Which service manager this machine has, and whether a daemon is its service."""

from __future__ import annotations

import sys

from cli.errors import CliError
from cli.service.manager import ServiceManager
from runner.setting_values import parse_address


def find_manager() -> ServiceManager:
    """The service manager of this machine. Raises CliError where there is none."""
    match sys.platform:
        case "darwin":
            from cli.service.launchd import Launchd

            return Launchd()
        case "linux":
            from cli.service.systemd import Systemd

            return Systemd()
        case "win32":
            from cli.service.taskscheduler import TaskScheduler

            return TaskScheduler()
        case other:
            raise CliError(
                f"no service manager is supported on {other}; have your system run this command "
                "at login: hearth serve"
            )


def manager_of(pid: int) -> ServiceManager | None:
    """The manager whose service the process is; None when it is none."""
    try:
        manager = find_manager()
        return manager if manager.state().pid == pid else None
    except CliError:
        return None


def waits_at(url: str) -> bool:
    """Whether the service manager listens at url for a daemon that does not run yet."""
    try:
        manager = find_manager()
        return manager.listens_at(parse_address(url)) and manager.state().waiting
    except CliError:
        return False
