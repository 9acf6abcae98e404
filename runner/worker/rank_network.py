"""Connections between the processes of a model on several machines, over the network of a cluster,
which sees what they carry. Both sides show that they have the same key, which each is told by its
parent.

Knows sockets, not what is computed.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final

CONNECT_S: Final = 20.0
PROOF_S: Final = 10.0
LOST_S: Final = 10.0  # unacknowledged for so long, the other side is gone
_NONCE_BYTES: Final = 32
_LEADING, _FOLLOWING = b"leading", b"following"


@dataclass(frozen=True, slots=True)
class RankNetwork:
    """Where the processes of a model are. host: the address of this machine; addresses: on which
    the others listen, by rank; key: in hexadecimal digits."""

    host: str
    addresses: tuple[tuple[str, int], ...]
    key: str


def new_key() -> str:
    """A key for the processes of one model."""
    return secrets.token_hex(32)


def listening(host: str) -> socket.socket:
    """On a free port of this address only. Raises OSError."""
    return socket.create_server((host, 0))


def accepted(server: socket.socket, key: str, limit_s: float) -> Connection:
    """The connection of the first process; others are closed. Raises TimeoutError, OSError."""
    until_s = time.monotonic() + limit_s
    while (left_s := until_s - time.monotonic()) > 0:
        server.settimeout(left_s)
        sock, _ = server.accept()
        try:
            return _proven(sock, key, _FOLLOWING, _LEADING)
        except (OSError, EOFError):
            continue
    raise TimeoutError(f"no process with the key connected within {limit_s:g} s")


def connected(address: tuple[str, int], key: str) -> Connection:
    """A connection of the first process to another one. Raises OSError, EOFError."""
    sock = socket.create_connection(address, CONNECT_S)
    return _proven(sock, key, _LEADING, _FOLLOWING)


def _proven(sock: socket.socket, key: str, own: bytes, other: bytes) -> Connection:
    """own, other: what the sides are, so that neither can send back what it has got."""
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a step waits for its message
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * LOST_S))
    connection = Connection(sock.detach())
    try:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        connection.send_bytes(nonce)
        theirs = _received(connection)
        connection.send_bytes(_proof(key, own, theirs))
        if not hmac.compare_digest(_received(connection), _proof(key, other, nonce)):
            raise PermissionError("the process at the other end has another key")
    except BaseException:
        connection.close()
        raise
    return connection


def _received(connection: Connection) -> bytes:
    if not connection.poll(PROOF_S):
        raise TimeoutError(f"the other end said nothing for {PROOF_S:g} s")
    return connection.recv_bytes(_NONCE_BYTES)


def _proof(key: str, side: bytes, nonce: bytes) -> bytes:
    return hmac.digest(bytes.fromhex(key), side + nonce, "sha256")
