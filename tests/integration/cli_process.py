"""The hearth command as a process of its own, for the tests of the CLI."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests import forked_commands
from tests.conftest import RunningDaemon

COMMAND = (sys.executable, "-P", "-m", "cli.main")
TIMEOUT_S = 60.0


def environment(home: Path, address: str, **more: str) -> dict[str, str]:
    """Nothing of this process's environment but PATH; no daemon is started unless more says so."""
    return {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "HEARTH_HOME": str(home),
        "HEARTH_HOST": address,
        "HEARTH_NO_AUTOSTART": "1",
        "HEARTH_OFFLINE": "1",
        **more,
    }


def of_daemon(daemon: RunningDaemon, **more: str) -> dict[str, str]:
    """The environment of a command that talks to daemon."""
    return environment(daemon.home, daemon.url, **more)


def hearth(
    env: Mapping[str, str], *args: str, stdin: bytes = b"", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end: by fork, which takes a tenth of the processor time, where that is
    the same."""
    if forked_commands.fits(env, stdin):
        ran = forked_commands.run(args, env, stdin, cwd or Path.cwd(), TIMEOUT_S)
    else:
        ran = subprocess.run(
            [*COMMAND, *args], input=stdin, env=env, cwd=cwd, capture_output=True, timeout=TIMEOUT_S
        )
    return subprocess.CompletedProcess(
        ran.args, ran.returncode, ran.stdout.decode(), ran.stderr.decode()
    )


def free_address() -> str:
    """An address of this machine where nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def end(pid: int) -> None:
    """End a process that a test caused, and wait for it."""
    process = psutil.Process(pid)
    process.terminate()
    process.wait(TIMEOUT_S)
