"""An agent of macOS's launchd (man launchd.plist)."""

from __future__ import annotations

import os
import plistlib
from pathlib import Path

from cli.service.manager import Service, ServiceState, ask, tell, write

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
        write(self.path, self.describe(service))
        ask(("launchctl", "bootout", f"{self._domain}/{LABEL}"))  # a former one, if there is
        tell(("launchctl", "bootstrap", self._domain, str(self.path)))

    def uninstall(self) -> None:
        """See Manager.uninstall."""
        try:
            tell(("launchctl", "bootout", f"{self._domain}/{LABEL}"))
        finally:
            self.path.unlink(missing_ok=True)

    def state(self) -> ServiceState:
        """See Manager.state."""
        found = ask(("launchctl", "print", f"{self._domain}/{LABEL}"))
        return ServiceState(
            self.path.exists(), found.returncode == 0 and "state = running" in found.stdout
        )
