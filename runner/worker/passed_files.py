"""A file that the daemon has opened for a worker: on POSIX its descriptor goes over the socket; on
Windows, where workers are not confined, its path does."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if sys.platform == "win32":
    from runner.file_system import open_file

    def named(path: Path) -> dict[str, Any]:
        """What the message about the file says besides."""
        return {"path": str(path)}

    def send_with_file(channel: socket.socket, data: bytes, file: int) -> None:  # noqa: ARG001
        """Raises OSError."""
        channel.sendall(data)

    def receive_with_file(channel: socket.socket, size: int) -> tuple[bytes, int | None]:
        """At most size bytes, and the descriptor that came with them. Raises OSError."""
        return channel.recv(size), None

    def opened(message: Mapping[str, Any], file: int | None) -> int | None:
        """The descriptor of the file that a message of the daemon is about."""
        if file is None and "path" in message:
            try:
                return open_file(str(message["path"]), os.O_RDONLY)
            except OSError:
                return None
        return file
else:

    def named(path: Path) -> dict[str, Any]:  # noqa: ARG001
        """What the message about the file says besides."""
        return {}

    def send_with_file(channel: socket.socket, data: bytes, file: int) -> None:
        """Raises OSError."""
        sent = socket.send_fds(channel, [data], [file])
        channel.sendall(data[sent:])

    def receive_with_file(channel: socket.socket, size: int) -> tuple[bytes, int | None]:
        """At most size bytes, and the descriptor that came with them. Raises OSError."""
        data, files, *_ = socket.recv_fds(channel, size, 1)
        return data, files[0] if files else None

    def opened(message: Mapping[str, Any], file: int | None) -> int | None:  # noqa: ARG001
        """The descriptor of the file that a message of the daemon is about."""
        return file
