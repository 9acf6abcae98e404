"""Debian's docker-registry as a process of the tests: the real thing, on loopback.

Looked for in PATH under the names that distributions use, and where HEARTH_TEST_REGISTRY says.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

START_TIMEOUT_S = 60.0
_ATTEMPTS = 3
USER, PASSWORD = "anna", "s3cret-canary"
_HASH = "$2y$04$abcdefghijklmnopqrstuuMW7rijBXKQMxQs6A55XYLyzdzLF4c5S"

PROGRAM = (
    os.environ.get("HEARTH_TEST_REGISTRY")
    or shutil.which("docker-registry")
    or shutil.which("registry")
)
needs_registry = pytest.mark.skipif(
    PROGRAM is None, reason="docker-registry is not installed (apt-get install docker-registry)"
)


@contextmanager
def docker_registry(folder: Path, auth: str | None = None) -> Iterator[str]:
    """A running registry with its files in folder; gives its address. auth: the line of its
    configuration for that."""
    for _ in range(_ATTEMPTS):
        process, address = _start(folder, auth)
        if _answers(process, address):
            break
    else:
        raise AssertionError(f"docker-registry does not answer (exit code {process.poll()})")
    try:
        yield address
    finally:
        process.terminate()
        process.wait(START_TIMEOUT_S)


def _start(folder: Path, auth: str | None) -> tuple[subprocess.Popen[bytes], str]:
    """A registry at a port that was free; another program may take it first."""
    assert PROGRAM is not None
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    process = subprocess.Popen(
        [PROGRAM, "serve", str(_configuration(folder, address, auth))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"]},
    )
    return process, address


def basic_auth(folder: Path) -> str:
    """The line for a registry that asks for USER and PASSWORD."""
    (folder / "htpasswd").write_text(f"{USER}:{_HASH}\n")
    return f"auth: {{htpasswd: {{realm: test, path: {folder}/htpasswd}}}}"


def _configuration(folder: Path, address: str, auth: str | None) -> Path:
    lines = [
        "version: 0.1",
        "log: {level: error, accesslog: {disabled: true}}",
        f"storage: {{filesystem: {{rootdirectory: {folder}/data}}}}",
        f"http: {{addr: '{address}', secret: test}}",
    ]
    if auth is not None:
        lines.append(auth)
    path = folder / "registry.yml"
    path.write_text("\n".join(lines) + "\n")
    return path


def _answers(process: subprocess.Popen[bytes], address: str) -> bool:
    """Wait until the registry answers; False when it has ended."""
    host, _, port = address.partition(":")
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), 1.0).close()
        except OSError:
            time.sleep(0.02)
        else:
            return True
    process.kill()
    process.wait(START_TIMEOUT_S)
    return False
