"""A unit of the user's systemd (man systemd.service, systemd.syntax)."""

from __future__ import annotations

import os
from pathlib import Path

from cli.errors import CliError
from cli.service.manager import (
    Service,
    ServiceManager,
    ServiceState,
    run,
    run_checked,
    write_private,
)

UNIT = "hearth.service"
_CONTROL = ("systemctl", "--user")

# A daemon that cannot start (port or store taken) is left alone after the fifth time.
_TEXT = """\
[Unit]
Description=hearth, the local model runner
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
{environment}ExecStart={command}
Restart=on-failure
RestartSec=2

[Install]
WantedBy=default.target
"""


class Systemd(ServiceManager):
    """The systemd of the user."""

    name = "systemd"
    journal: tuple[str, ...] = ("journalctl", "--user", "--unit", UNIT, "--output", "cat")

    def __init__(self) -> None:
        config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        self.path = Path(config) / "systemd" / "user" / UNIT

    def describe(self, service: Service) -> str:
        lines = [
            f"Environment={_quoted(f'{name}={value}')}\n"
            for name, value in sorted(service.environment.items())
        ]
        command = " ".join(_quoted(word).replace("$", "$$") for word in service.command)
        return _TEXT.format(environment="".join(lines), command=command)

    def check(self, service: Service) -> None:
        self.describe(service)
        done = run((*_CONTROL, "show-environment"))
        if done.returncode != 0:
            raise CliError(
                f"systemd has no user session here ({done.stderr.strip()}): log in on the machine "
                "itself or run `loginctl enable-linger` first; `hearth serve` needs no session"
            )

    def install(self, service: Service) -> None:
        write_private(self.path, self.describe(service))
        run_checked((*_CONTROL, "daemon-reload"))
        run_checked((*_CONTROL, "enable", UNIT))

    def start(self) -> None:
        run_checked((*_CONTROL, "restart", UNIT))

    def uninstall(self) -> None:
        try:
            run_checked((*_CONTROL, "disable", "--now", UNIT))
        finally:
            self.path.unlink(missing_ok=True)
        run_checked((*_CONTROL, "daemon-reload"))

    def state(self) -> ServiceState:
        installed = self.path.exists()
        return ServiceState(installed, self._pid() if installed else None)

    def _pid(self) -> int | None:
        try:
            said = run((*_CONTROL, "show", "--property=MainPID", "--value", UNIT)).stdout.strip()
        except CliError:
            return None
        return int(said) or None if said.isdecimal() else None


def _quoted(word: str) -> str:
    """A word as systemd reads it back. Raises CliError for control characters."""
    if not word.isprintable():
        raise CliError(f"{word!r} cannot be written into a systemd unit")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
