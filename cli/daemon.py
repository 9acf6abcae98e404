"""Starts the daemon in the background and waits until it answers.

Knows the process and its log, not what the daemon does.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cli.errors import CliError
from cli.private_files import private_files
from cli.terminal import status
from runner.programs import DETACHED_OPTIONS, ROOT_FOLDER
from runner.settings import LOG_FILE, Settings, given, variable

if TYPE_CHECKING:
    import psutil

    from runner.client import Client
    from runner.replies import JsonObject

START_TIMEOUT_S = 60.0
_POLL_S = 0.02
_LOG_LINES = 8
_CLEAN_UP_S = 15.0  # after the answers: for workers to end and files to be closed
_LOG_LIMIT_BYTES = 8 << 20

# -P keeps the current folder off sys.path: a folder named runner there must not be executed.
COMMAND = (sys.executable, "-P", "-m", "runner.server")


def start_daemon(
    settings: Settings,
    client: Client,
    variables: Mapping[str, str] | None = None,
    timeout_s: float = START_TIMEOUT_S,
) -> None:
    """Start a daemon detached from this terminal, with variables besides those of this process,
    and wait until it answers client.

    Of several callers at once one starts it, the others wait for that one. Raises CliError with
    the last lines of its log when it ends or does not answer within timeout_s.
    """
    from filelock import FileLock, Timeout

    log = log_file(settings)
    try:
        with private_files():
            log.parent.mkdir(parents=True, exist_ok=True)
            log.open("ab").close()
    except OSError as error:
        raise CliError(
            f"the daemon's log {log} cannot be written: {error.strerror}. Set HEARTH_HOME to "
            "another folder"
        ) from None
    try:
        with FileLock(log.with_suffix(".lock"), timeout=timeout_s, mode=0o600):
            if not answers(client):
                environ = os.environ | absolute_paths(settings) | dict(variables or {})
                _start(environ, log, client, time.monotonic() + timeout_s)
    except Timeout:
        raise CliError(
            f"another hearth command has been starting the daemon for {timeout_s:.0f} s; "
            f"see {log}, or start the daemon with: hearth serve"
        ) from None


def _start(environ: dict[str, str], log: Path, client: Client, deadline: float) -> None:
    if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
        log.replace(log.with_suffix(".old.log"))
    with private_files(), log.open("ab") as output:
        offset = output.tell()
        process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=ROOT_FOLDER,
            env=environ,
            **DETACHED_OPTIONS,
        )
    answered = False
    try:
        answered = wait_until(lambda: process.poll() is not None or answers(client), deadline)
    finally:  # one that this client cannot trust could not be ended by it either
        if not answered:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_CLEAN_UP_S)
    if not answered:
        raise CliError(f"the daemon does not respond. {_tail(log, offset)}")
    if process.poll() is not None and not answers(client):
        raise CliError(
            f"the daemon exited at once with exit code {process.returncode}. {_tail(log, offset)}"
        )


def absolute_paths(settings: Settings) -> dict[str, str]:
    """The paths of settings as variables that mean the same from every current folder, without
    those of config.toml, which the daemon reads by itself."""
    paths, found = {}, given()
    for item in fields(settings):
        path, ways = getattr(settings, item.name), found.get(item.name)
        if isinstance(path, Path) and not (ways and ways[0].in_file):
            paths[variable(item.name)] = str(path.absolute())
    return paths


def wait_until(condition: Callable[[], bool], deadline: float) -> bool:
    """Ask condition until it holds (True) or deadline, of the monotonic clock, has passed."""
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def log_file(settings: Settings) -> Path:
    """Where a daemon in the background logs."""
    return settings.state_dir / LOG_FILE


def running(client: Client) -> JsonObject | None:
    """The daemon's description of itself; None when nothing listens at the client's address, or
    only the service manager, which would start a daemon on a request."""
    from cli.service.choice import waits_at

    return None if waits_at(client.base_url) else _about(client)


def _about(client: Client) -> JsonObject | None:
    from runner.client import DaemonUnreachable

    try:
        return client.about()
    except DaemonUnreachable:
        return None


def process_of(client: Client, about: JsonObject) -> psutil.Process:
    """The daemon's process. Raises CliError when it is not this user's on this machine."""
    from cli.process import own_process

    return own_process(int(about["pid"]), urlsplit(client.base_url).port or 0)


def end_daemon(client: Client, about: JsonObject, quiet: bool = False) -> None:
    """Stop the daemon that describes itself so, and wait until it has ended; prints that unless
    quiet. Raises CliError when this user may not do that, or when it takes too long."""
    from cli.process import has_ended
    from runner.stop_signals import ask_to_stop

    process = process_of(client, about)
    drain_s = about["drain_timeout_s"]
    if not quiet:
        left = "all the time they need" if drain_s is None else f"{drain_s:g} s"
        status(f"stopping the daemon (process {process.pid}); answers in progress have {left}")
    ask_to_stop(process)
    limit_s = math.inf if drain_s is None else drain_s + _CLEAN_UP_S
    if not wait_until(lambda: has_ended(process), time.monotonic() + limit_s):
        raise CliError(
            f"the daemon (process {process.pid}) has not ended within {limit_s:g} s; "
            f"kill -9 {process.pid} ends it at once"
        )
    if not quiet:
        status("the daemon has stopped")


def answers(client: Client) -> bool:
    """Whether a daemon answers the client, even if only to require a key."""
    from runner.client import ClientError, ConnectionLost

    try:
        return _about(client) is not None
    except ConnectionLost:
        return False
    except ClientError as error:
        if error.code != "invalid_api_key":  # the client is older than the daemon and its token
            raise
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
