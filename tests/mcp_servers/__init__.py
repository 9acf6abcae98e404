"""MCP servers for tests, each a program of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HOSTILE = (
    *("nonsense", "dies", "unwanted", "garbage", "pages", "flood", "stays", "silent"),
    "changes",
)


def entry(module: str, *args: str, **more: Any) -> dict[str, Any]:
    """A server as mcp.json has it."""
    words = ["-m", f"tests.mcp_servers.{module}", *args]
    return {"command": sys.executable, "args": words, "cwd": str(Path(__file__).parents[2]), **more}


@contextmanager
def over_http(port: int) -> Iterator[None]:
    """The server plain, at a port of the loopback."""
    command = [sys.executable, "-m", "tests.mcp_servers.plain", str(port)]
    folder = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE) as server:
        try:
            assert server.stderr is not None
            while b"running on" not in (line := server.stderr.readline()):
                assert line, "the server has ended"
            yield
        finally:
            server.kill()
