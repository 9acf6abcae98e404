"""Sockets that were passed on as systemd does it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence

import pytest

# The child puts what it was given at 3 and above, as systemd does, and says what it takes over.
CHILD = """
import os, socket, sys
from runner.server.activation import passed_sockets
from runner.server.sockets import ListenError
given = [int(word) for word in sys.argv[2:]]
moved = [os.dup(os.dup2(fd, 50 + at)) for at, fd in enumerate(given)]
for at, fd in enumerate(moved):
    os.dup2(fd, 3 + at)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(given)), LISTEN_FDNAMES="web:")
try:
    for sock, address in passed_sockets(sys.argv[1] == "guarded"):
        kept = os.get_inheritable(sock.fileno()), sock.getblocking()
        print(sock.fileno(), address.url, sock.proto == socket.IPPROTO_TCP, *kept)
except ListenError as error:
    print(error)
print([name for name in os.environ if name.startswith("LISTEN_")])
"""


def told(sockets: Sequence[socket.socket], guarded: bool = False) -> list[str]:
    """What a process says that is given these."""
    fds = [each.fileno() for each in sockets]
    words = [sys.executable, "-P", "-c", CHILD, "guarded" if guarded else "open", *map(str, fds)]
    done = subprocess.run(words, pass_fds=fds, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_passed_sockets_are_taken_over_and_children_know_nothing_of_them() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.2", 0)) as two,
    ):
        ports = [each.getsockname()[1] for each in (one, two)]
        lines = told([one, two])
    assert lines == [
        f"3 http://127.0.0.1:{ports[0]} True False False",
        f"4 http://127.0.0.2:{ports[1]} True False False",
        "[]",
    ]


def test_an_address_that_others_reach_needs_a_key_here_too() -> None:
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        assert re.match(r"0\.0\.0\.0 \(systemd's web\) can be reached", told([everywhere])[0])
        assert told([everywhere], guarded=True)[0].startswith("3 http://0.0.0.0:")


@pytest.mark.parametrize("kind", ["udp", "unix", "connected"])
def test_what_is_not_a_listening_tcp_socket_is_refused_by_name(kind: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, \
            socket.socket() as tcp:  # fmt: skip
        given = {"udp": udp, "unix": theirs, "connected": tcp}[kind]
        assert told([given])[0].startswith("descriptor 3 (web) is not a listening TCP socket")


def test_variables_for_another_process_mean_nothing() -> None:
    from runner.server.activation import passed_sockets

    environ = {"LISTEN_PID": str(os.getppid()), "LISTEN_FDS": "1"}
    assert passed_sockets(False, environ) == []
    assert environ == {}
