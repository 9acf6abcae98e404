"""An agent of macOS's launchd (man launchd.plist)."""

from __future__ import annotations

import os
import plistlib
from pathlib import Path

from cli.service.manager import Service, ServiceState, run, run_checked, write_private

LABEL = "local.hearth.daemon"


class Launchd:
    """See Manager."""

    name = "launchd"

    def __init__(self) -> None:
        self.path = Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        self._domain = f"gui/{os.getuid()}"

    def describe(self, service: Service) -> str:
        """See Manager.describe."""
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

    def install(self, service: Service) -> None:
        """See Manager.install."""
        service.log.parent.mkdir(parents=True, exist_ok=True)
        write_private(self.path, self.describe(service))
        run(("launchctl", "bootout", f"{self._domain}/{LABEL}"))  # an earlier one, if any
        run_checked(("launchctl", "bootstrap", self._domain, str(self.path)))

    def uninstall(self) -> None:
        """See Manager.uninstall."""
        try:
            run_checked(("launchctl", "bootout", f"{self._domain}/{LABEL}"))
        finally:
            self.path.unlink(missing_ok=True)

    def state(self) -> ServiceState:
        """See Manager.state."""
        found = run(("launchctl", "print", f"{self._domain}/{LABEL}"))
        return ServiceState(
            self.path.exists(), found.returncode == 0 and "state = running" in found.stdout
        )
