"""The sockets that systemd listens at for the daemon (man sd_listen_fds, systemd.socket).

They came with the first request, or with the start, and their queue stays with systemd while the
daemon is restarted. Where there are some, nothing else is bound.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

from runner.server.sockets import ListenError, check_guarded, prepare
from runner.setting_values import Address

_FIRST_FD = 3
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def passed_sockets(
    guarded: bool, environ: MutableMapping[str, str] = os.environ
) -> list[tuple[socket.socket, Address]]:
    """The listening sockets that were passed to this process, each with its address; none where it
    was started otherwise. Children get neither them nor the variables. guarded: as of listen.
    Raises ListenError for one that is not a listening TCP socket, or could be reached."""
    pid, count, names = (environ.pop(name, "") for name in _VARIABLES)
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    labels = dict(enumerate(names.split(":"), _FIRST_FD))
    found: list[tuple[socket.socket, Address]] = []
    try:
        for fd in range(_FIRST_FD, _FIRST_FD + int(count)):
            found.append(_taken(fd, labels.get(fd) or "unnamed", guarded))
    except ListenError:
        for each, _ in found:
            each.close()
        raise
    return found


def _taken(fd: int, label: str, guarded: bool) -> tuple[socket.socket, Address]:
    try:
        os.set_inheritable(fd, False)
        sock = socket.socket(fileno=fd)
    except OSError as error:
        raise ListenError(
            f"descriptor {fd} ({label}), which LISTEN_FDS names, is not a socket: {error.strerror}"
        ) from None
    try:
        is_tcp = (
            sock.family in (socket.AF_INET, socket.AF_INET6)
            and sock.type == socket.SOCK_STREAM
            and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        )
        if not is_tcp:
            raise ListenError(
                f"descriptor {fd} ({label}) is not a listening TCP socket; give the .socket unit a "
                "ListenStream=ADDRESS:PORT, without Accept=yes"
            )
        host, port = sock.getsockname()[:2]
        check_guarded(host, guarded, f" (systemd's {label})")
        prepare(sock)
    except ListenError:
        sock.close()
        raise
    return sock, Address(host, port)
