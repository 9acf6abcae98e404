"""A port that no other program can listen at as well."""

from __future__ import annotations

import socket
import sys


def own_port(sock: socket.socket) -> None:
    """To be called before sock is bound. POSIX gives a port to one program anyway, and with this
    at once after the last one; Windows would give it to any that asks to share."""
    if sys.platform == "win32":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    else:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
