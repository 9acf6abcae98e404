"""Starts the daemon in the background and waits until it answers.

Knows the process and its log, not what the daemon does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cli.errors import CliError
from runner.settings import Settings

if TYPE_CHECKING:
    from runner.client import Client

START_TIMEOUT_S = 60.0
_POLL_S = 0.02
_LOG_LINES = 8
_LOG_LIMIT_BYTES = 8 << 20

# -P keeps the current folder off sys.path: a folder named runner there must not be executed.
COMMAND = (sys.executable, "-P", "-m", "runner.server")


def start_daemon(settings: Settings, client: Client, timeout_s: float = START_TIMEOUT_S) -> None:
    """Start a daemon detached from this terminal and wait until it answers client.

    Of several callers at once one starts it, the others wait for that one. Raises CliError with
    the last lines of its log when it ends or does not answer within timeout_s.
    """
    from filelock import FileLock, Timeout

    log = settings.state_dir / "daemon.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(log.with_suffix(".lock"), timeout=timeout_s):
            if not answers(client):
                _start(settings, log, client, time.monotonic() + timeout_s)
    except Timeout:
        raise CliError(
            f"another hearth command has been starting the daemon for {timeout_s:.0f} s; "
            f"see {log}, or start the daemon with: hearth serve"
        ) from None


def _start(settings: Settings, log: Path, client: Client, deadline: float) -> None:
    if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
        log.replace(log.with_suffix(".old.log"))
    with log.open("ab") as output:
        offset = output.tell()
        process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=Path.cwd().anchor,
            env=os.environ | absolute_paths(settings),
            start_new_session=True,
        )
    if not wait_until(lambda: process.poll() is not None or answers(client), deadline):
        process.terminate()
        raise CliError(f"the daemon does not respond. {_tail(log, offset)}")
    if process.poll() is not None and not answers(client):
        raise CliError(
            f"the daemon exited at once with exit code {process.returncode}. {_tail(log, offset)}"
        )


def absolute_paths(settings: Settings) -> dict[str, str]:
    """The paths of settings as variables that mean the same from every current folder."""
    given = {
        "HEARTH_HOME": settings.home,
        "HEARTH_MODELS": settings.models,
        "HEARTH_TLS_CERT": settings.tls_cert,
        "HEARTH_TLS_KEY": settings.tls_key,
    }
    return {name: str(path.absolute()) for name, path in given.items() if path is not None}


def wait_until(condition: Callable[[], bool], deadline: float) -> bool:
    """Ask condition until it holds (True) or deadline, of the monotonic clock, has passed."""
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def answers(client: Client) -> bool:
    """Whether a daemon answers the client."""
    from runner.client import ConnectionLost, DaemonUnreachable

    try:
        client.version()
    except (DaemonUnreachable, ConnectionLost):
        return False
    return True


def _tail(log: Path, offset: int) -> str:
    with log.open("rb") as file:
        file.seek(offset)
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    if not lines:
        return f"Its log is empty: {log}"
    return f"Last lines of its log {log}:\n" + "\n".join(
        f"  {line}" for line in lines[-_LOG_LINES:]
    )
