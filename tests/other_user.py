"""Another user of this machine, for tests that run as root: plain sockets, in the system's Python,
which everybody may read."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

UID = 54321  # nobody's
PYTHON = "/usr/bin/python3"
TIMEOUT_S = 60.0

needs_two_users = pytest.mark.skipif(
    os.getuid() != 0 or not Path(PYTHON).exists(), reason="only root can be another user"
)

_ASK = """
import http.client, json, sys
address, asked = json.load(sys.stdin)
connection = http.client.HTTPConnection(*address, timeout=30)
for method, path, headers, body in asked:
    text = None if body is None else json.dumps(body)
    connection.request(method, path, text, {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    print(json.dumps([answer.status, answer.read().decode()]))
"""

_HOLD = """
import json, socket, sys
held = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print(held.getsockname()[1], flush=True)
got = b""
while not got:
    client, _ = held.accept()
    client.settimeout(0.5)
    try:
        got = client.recv(65536)
    except TimeoutError:
        pass
    client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\n{}")
    client.close()
print(got.decode(), flush=True)
"""

Asked = tuple[str, str, dict[str, str], Any]


def _popen(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [PYTHON, "-I", "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        env={},
        user=UID,
        group=UID,
        extra_groups=[],
    )


def ask(port: int, asked: Sequence[Asked], host: str = "127.0.0.1") -> list[tuple[int, str]]:
    """Status and body of requests that another user sends, over one connection."""
    with _popen(_ASK) as process:
        out, errors = process.communicate(json.dumps([(host, port), asked]), TIMEOUT_S)
    assert process.returncode == 0, errors
    return [(status, body) for status, body in map(json.loads, out.splitlines())]


@contextmanager
def holding_a_port(port: int = 0) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A program of another user that listens on a port: it, and the process, which writes the
    first bytes that a client sends to its stdout."""
    process = _popen(_HOLD, str(port))
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline()), process
    finally:
        process.kill()
        process.communicate()
