"""What every service manager does, and which one this machine has."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cli.errors import CliError

_TIMEOUT_S = 120.0  # stopping lets the daemon finish its streams


@dataclass(frozen=True, slots=True)
class Service:
    """What shall run. log: where the manager has no journal of its own."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path


@dataclass(frozen=True, slots=True)
class ServiceState:
    """What the manager knows of the service."""

    installed: bool
    running: bool


class ServiceManager(Protocol):
    """One service manager. Methods raise Failure with what its command said."""

    name: str
    path: Path  # of the file that describes the service

    def describe(self, service: Service) -> str:
        """The text of the file."""

    def install(self, service: Service) -> None:
        """Write the file, start the service now and at every login."""

    def uninstall(self) -> None:
        """Stop the service and remove the file."""

    def state(self) -> ServiceState:
        """Ask the manager."""


def find_manager() -> ServiceManager:
    """The manager of this machine. Raises Failure where there is none that hearth knows."""
    if sys.platform == "darwin":
        from cli.service.launchd import Launchd

        return Launchd()
    if sys.platform.startswith("linux"):
        from cli.service.systemd import Systemd

        return Systemd()
    raise CliError(
        f"services are made with systemd or launchd, which {sys.platform} has not: start the "
        "daemon at login with: hearth serve"
    )


def ask(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a manager's command. Raises Failure when it is missing or does not end."""
    if shutil.which(command[0]) is None:
        raise CliError(
            f"{command[0]} is not on this machine; 'hearth service print' shows what would be "
            "installed, and 'hearth serve' runs the daemon without it"
        )
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CliError(f"{' '.join(command)} has not ended within {_TIMEOUT_S:.0f} s") from None


def tell(command: Sequence[str]) -> None:
    """Run a manager's command. Raises Failure with its words when it fails."""
    done = ask(command)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
        raise CliError(f"{' '.join(command)}: {said}")


def write(path: Path, text: str) -> None:
    """Put text at path for this user's eyes only, making the folder. Raises Failure."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(text)
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from None
