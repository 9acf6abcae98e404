"""`python -m cli.restart PID`: replaces a daemon of an earlier version with one of this version.

install.sh runs it after an upgrade. The answers in progress are completed first.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil

from cli.connection import new_client
from cli.daemon import answers, end_daemon, start_daemon, wait_until
from cli.errors import CliError
from cli.service.choice import manager_of
from runner.client import ClientError
from runner.settings import load

INSTALLED = Path(sys.prefix) / "hearth-install.txt"
_UP_S = 60.0  # for the service manager to have started it


def restart(pid: int) -> None:
    """End the daemon of this process and start its successor, the same way and with its variables;
    nothing where it has started since this version was installed. Raises CliError, ClientError and
    psutil.Error."""
    process = psutil.Process(pid)
    if process.create_time() > INSTALLED.stat().st_mtime:
        return
    variables = process.environ()
    in_terminal = hasattr(process, "terminal") and process.terminal() is not None
    os.environ.clear()
    os.environ.update(variables)
    settings = load()
    client = new_client(settings)
    manager = manager_of(pid)
    end_daemon(client, {"pid": pid, "drain_timeout_s": settings.drain_timeout})
    if in_terminal:
        print(f"- the daemon of process {pid} has ended; start it again with: hearth serve")
        return
    if manager is not None:
        manager.start()
        wait_until(lambda: answers(client), time.monotonic() + _UP_S)
    else:
        start_daemon(settings, client)
    print(f"- the daemon runs again, with the new version: {client.base_url}")


if __name__ == "__main__":
    try:
        restart(int(sys.argv[1]))
    except (CliError, ClientError, psutil.Error) as error:
        sys.exit(f"- the daemon (process {sys.argv[1]}) was not restarted: {error}")
