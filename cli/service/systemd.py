"""Units of the user's systemd: a service, and a socket that starts it with the first request (man
systemd.service, systemd.socket, systemd.syntax)."""

from __future__ import annotations

import os
import socket
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
from runner.setting_values import Address

UNIT = "hearth.service"
SOCKET = "hearth.socket"
_CONTROL = ("systemctl", "--user")

# A daemon that cannot start (port or store taken) is left alone after the fifth time.
_SERVICE_TEXT = """\
[Unit]
Description=hearth, the local model runner
Requires={socket}
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
{environment}ExecStart={command}
Restart=on-failure
RestartSec=2

[Install]
Also={socket}
"""
_SOCKET_TEXT = """\
[Unit]
Description=hearth, the local model runner: starts with the first request

[Socket]
{listen}Backlog=2048
NoDelay=yes

[Install]
WantedBy=sockets.target
"""


class Systemd(ServiceManager):
    """The systemd of the user."""

    name = "systemd"
    journal: tuple[str, ...] = ("journalctl", "--user", "--unit", UNIT, "--output", "cat")

    def __init__(self) -> None:
        config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        self.path = Path(config) / "systemd" / "user" / UNIT
        self._socket = self.path.with_name(SOCKET)

    def describe(self, service: Service) -> str:
        return f"# {UNIT}\n{_service_text(service)}\n# {SOCKET}\n{_socket_text(service)}"

    def check(self, service: Service) -> None:
        self.describe(service)
        done = run((*_CONTROL, "show-environment"))
        if done.returncode != 0:
            raise CliError(
                f"systemd has no user session here ({done.stderr.strip()}): log in on the machine "
                "itself or run `loginctl enable-linger` first; `hearth serve` needs no session"
            )

    def install(self, service: Service) -> None:
        write_private(self.path, _service_text(service))
        write_private(self._socket, _socket_text(service))
        run_checked((*_CONTROL, "daemon-reload"))
        run((*_CONTROL, "disable", UNIT))  # what an older hearth enabled starts without a socket
        run_checked((*_CONTROL, "enable", SOCKET))

    def start(self) -> None:
        run((*_CONTROL, "stop", UNIT, SOCKET))  # a process has the port of a socket that moved
        run_checked((*_CONTROL, "start", SOCKET))

    def uninstall(self) -> None:
        try:
            run_checked((*_CONTROL, "disable", "--now", SOCKET, UNIT))
        finally:
            self._socket.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)
        run_checked((*_CONTROL, "daemon-reload"))

    def state(self) -> ServiceState:
        if not self.path.exists():
            return ServiceState(installed=False, pid=None)
        try:
            pid, state = _property("MainPID", UNIT), _property("SubState", SOCKET)
        except CliError:
            return ServiceState(installed=True, pid=None)
        number = int(pid) if pid.isdecimal() else 0
        return ServiceState(True, number or None, waiting=state == "listening")

    def listens_at(self, address: Address) -> bool:
        try:
            return _listen_stream(address) in self._socket.read_text().splitlines()
        except (OSError, CliError):
            return False


def _property(name: str, unit: str) -> str:
    return run((*_CONTROL, "show", f"--property={name}", "--value", unit)).stdout.strip()


def _service_text(service: Service) -> str:
    lines = [
        f"Environment={_quoted(f'{name}={value}')}\n"
        for name, value in sorted(service.environment.items())
    ]
    command = " ".join(_quoted(word).replace("$", "$$") for word in service.command)
    return _SERVICE_TEXT.format(socket=SOCKET, environment="".join(lines), command=command)


def _socket_text(service: Service) -> str:
    listen = [f"{_listen_stream(address)}\n" for address in service.addresses]
    return _SOCKET_TEXT.format(listen="".join(listen))


def _listen_stream(address: Address) -> str:
    """The line for an address, which is a number for systemd. Raises CliError."""
    if not address.port:
        raise CliError(
            "a service needs a fixed port: set HEARTH_HOST to an address with one, such as "
            f"{address.host}:4327"
        )
    if ":" in address.host:
        return f"ListenStream=[{address.host}]:{address.port}"
    try:
        return f"ListenStream={socket.gethostbyname(address.host)}:{address.port}"
    except OSError as error:
        raise CliError(f"HEARTH_HOST={address.host} has no address here: {error}") from None


def _quoted(word: str) -> str:
    """A word as systemd reads it back. Raises CliError for control characters."""
    if not word.isprintable():
        raise CliError(f"{word!r} cannot be written into a systemd unit")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
