"""An agent of macOS's launchd (man launchd.plist)."""

from __future__ import annotations

import plistlib
import re
from pathlib import Path

from cli.private_files import private_files
from cli.service.manager import (
    Service,
    ServiceManager,
    ServiceState,
    run,
    run_checked,
    write_private,
)
from runner.file_system import own_uid

LABEL = "local.hearth.daemon"


class Launchd(ServiceManager):
    """launchd of macOS."""

    name = "launchd"
    journal: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.path = Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        self._domain = f"gui/{own_uid()}"
        self._target = f"{self._domain}/{LABEL}"

    def describe(self, service: Service) -> str:
        agent = {
            "Label": LABEL,
            "ProgramArguments": list(service.command),
            "EnvironmentVariables": dict(service.environment),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "StandardErrorPath": str(service.log),
            "StandardOutPath": str(service.log),
        }
        return plistlib.dumps(agent).decode()

    def check(self, service: Service) -> None:
        run_checked(("launchctl", "print", self._domain))

    def install(self, service: Service) -> None:
        with private_files():
            service.log.parent.mkdir(parents=True, exist_ok=True)
        write_private(self.path, self.describe(service))

    def start(self) -> None:
        run(("launchctl", "bootout", self._target))  # an earlier one, if any
        run_checked(("launchctl", "bootstrap", self._domain, str(self.path)))

    def uninstall(self) -> None:
        try:
            run_checked(("launchctl", "bootout", self._target))
        finally:
            self.path.unlink(missing_ok=True)

    def state(self) -> ServiceState:
        found = re.search(r"\bpid = (\d+)", run(("launchctl", "print", self._target)).stdout)
        return ServiceState(self.path.exists(), int(found[1]) if found else None)
