"""What every service manager does, and how its commands are run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cli.errors import CliError
from cli.private_files import private_files
from runner.setting_values import Address

_TIMEOUT_S = 120.0  # stopping lets the daemon finish its streams


@dataclass(frozen=True, slots=True)
class Service:
    """What to run. log: for managers without a journal of their own. addresses: where it listens,
    for those that can listen for it."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    addresses: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceState:
    """What the manager knows of the service. pid: of its process, when it runs. waiting: the
    manager listens, and starts the process with the first request."""

    installed: bool
    pid: int | None
    waiting: bool = False


class ServiceManager(Protocol):
    """One service manager. Methods raise CliError with what its command said."""

    name: str
    path: Path  # of the file that describes the service
    journal: tuple[str, ...]  # the command that shows the log; none: it is in Service.log

    def describe(self, service: Service) -> str:
        """The text of the file, or of both."""

    def check(self, service: Service) -> None:
        """Raises CliError if service cannot be installed here. Changes nothing."""

    def install(self, service: Service) -> None:
        """Write the file, and have the service started at every login."""

    def start(self) -> None:
        """Start the service now, again if it runs."""

    def uninstall(self) -> None:
        """Stop the service and remove the file."""

    def state(self) -> ServiceState:
        """Ask the manager."""

    def listens_at(self, address: Address) -> bool:
        """Whether the installed service has the manager listen there for it. Asks no process."""
        return False


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a manager's command. Raises CliError when it is missing or does not end."""
    if shutil.which(command[0]) is None:
        raise CliError(
            f"{command[0]} is not installed; `hearth serve` runs the daemon without it, and "
            "`hearth service print` shows the service file"
        )
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CliError(f"{' '.join(command)} did not finish within {_TIMEOUT_S:.0f} s") from None


def run_checked(command: Sequence[str]) -> None:
    """Run a manager's command. Raises CliError with its words when it fails."""
    done = run(command)
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
        raise CliError(f"{' '.join(command)}: {output}")


def write_private(path: Path, text: str, encoding: str = "utf-8") -> None:
    """Put text at path for this user's eyes only, making the folder. Raises CliError."""
    try:
        with private_files():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding=encoding)
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from None
