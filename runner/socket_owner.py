"""Which user of this machine holds the other end of a loopback connection.

Linux answers for one connection (sock_diag(7), 27 us, however many there are); where it does not,
/proc/net/tcp is read. Elsewhere a user sees the sockets of its own processes only, which psutil
lists: that tells whether the other end is one of them. Knows no daemon and no HTTP.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runner.file_system import own_uid

_ROOT = 0
# "nobody": also what the kernel says of every user that this user namespace does not know.
_OVERFLOW = 65534

_AF_NETLINK = 16  # linux/socket.h; Linux alone knows its name
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _NLMSG_ERROR = 4, 20, 1, 2
_HEADER, _REQUEST, _PORTS, _ANSWER = "=IHHII", "=BBBBI", "!HH", "=IIIII"
_ID_BYTES = 48
_NO_COOKIE = 0xFFFFFFFF
_ESTABLISHED, _FIN_WAIT1, _FIN_WAIT2, _CLOSE_WAIT, _LISTEN = 1, 4, 5, 8, 10  # net/tcp_states.h
_CONNECTED = (_ESTABLISHED, _FIN_WAIT1, _FIN_WAIT2, _CLOSE_WAIT)
_IS_LINUX = sys.platform == "linux"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One end of a TCP connection; an IPv4 address that was written as an IPv6 one is itself."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int

    @classmethod
    def of(cls, name: tuple[object, ...]) -> Endpoint:
        """That of getsockname and getpeername. Raises ValueError for another kind of socket."""
        found = ipaddress.ip_address(str(name[0]).partition("%")[0])
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        return cls(mapped or found, int(str(name[1])))


@dataclass(frozen=True, slots=True)
class _Socket:
    """What the kernel says of a socket. inode: 0 for one that no process has."""

    state: int
    uid: int
    inode: int


def is_trusted(uid: int | None) -> bool:
    """Whether that is this process's user for certain, or root."""
    return uid in (own_uid(), _ROOT) and uid != _OVERFLOW


def is_slow() -> bool:
    """Whether asking takes milliseconds, so that it belongs into a thread."""
    return not _has_sock_diag()


def sees_all_users() -> bool:
    """Whether a socket of which nothing is found is no process's of this machine."""
    return _IS_LINUX


def is_local(end: Endpoint, other: Endpoint) -> bool:
    """Whether both ends of a connection are of this machine."""
    return end.address == other.address or (end.address.is_loopback and other.address.is_loopback)


def connected_uid(end: Endpoint, other: Endpoint) -> int | None:
    """The user whose process holds the socket at end that is connected to other; None for one of
    another machine, one that no process has any more, and where it cannot be told."""
    if not is_local(end, other):
        return None
    if not _IS_LINUX:
        return _own_uid(end, other)
    return _uid(_asked(end, other), _CONNECTED)


def serving_uid(end: Endpoint, other: Endpoint) -> int | None:
    """The user whose process answers other at end: that of the connection's socket, or of the one
    that listens while the connection waits to be accepted."""
    accepted = connected_uid(end, other)
    if accepted is not None or not is_local(end, other):
        return accepted
    if not _IS_LINUX:
        return _own_uid(end, None)
    nobody = Endpoint(ipaddress.ip_address(bytes(len(end.address.packed))), 0)
    return _uid(_asked(end, nobody), (_LISTEN,))


def _uid(found: _Socket | None, states: tuple[int, ...]) -> int | None:
    """A socket that was closed, or is not accepted yet, is no process's, and its uid is 0."""
    if found is None or found.state not in states or not found.inode:
        return None
    return found.uid


def _asked(end: Endpoint, other: Endpoint) -> _Socket | None:
    if _has_sock_diag():
        with contextlib.suppress(OSError):
            return _sock_diag(end, other)
    return _listed(end, other)


def _has_sock_diag() -> bool:
    with contextlib.suppress(OSError):
        return _IS_LINUX and _finds_a_socket()
    return False


@cache
def _finds_a_socket() -> bool:
    """Whether the kernel answers: it says the same of a socket that is not there as without the
    module, so it is asked for one that is. Raises OSError: that may pass."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        found = _sock_diag(Endpoint.of(probe.getsockname()), Endpoint.of(("0.0.0.0", 0)))
        return found is not None and found.inode == os.fstat(probe.fileno()).st_ino


def _sock_diag(end: Endpoint, other: Endpoint) -> _Socket | None:
    """linux/inet_diag.h: inet_diag_req_v2 and inet_diag_msg. Raises OSError."""
    family = socket.AF_INET if end.address.version == 4 else socket.AF_INET6
    named = struct.pack(_PORTS, end.port, other.port) + b"".join(
        each.address.packed.ljust(16, b"\0") for each in (end, other)
    )
    wanted = struct.pack(_REQUEST, family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + named
    wanted += struct.pack("=III", 0, _NO_COOKIE, _NO_COOKIE)
    head = struct.calcsize(_HEADER)
    size = head + len(wanted)
    header = struct.pack(_HEADER, size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(_AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.setblocking(False)
        kernel.send(header + wanted)
        answer = kernel.recv(4096)
    if struct.unpack_from(_HEADER, answer)[1] == _NLMSG_ERROR:
        code = -struct.unpack_from("=i", answer, head)[0]
        if code == errno.ENOENT:
            return None
        raise OSError(code, os.strerror(code))
    state = answer[head + 1]
    uid, inode = struct.unpack_from(_ANSWER, answer, head + 4 + _ID_BYTES)[3:]
    return _Socket(state, uid, inode)


def _listed(end: Endpoint, other: Endpoint) -> _Socket | None:
    """The same from /proc/net/tcp and tcp6, which list all sockets of the machine."""
    found = None
    for here, there, item in _table():
        if here.port != end.port or there.port != other.port:
            continue
        is_listener = item.state == _LISTEN and (here.address == end.address
                                                 or here.address.is_unspecified)  # fmt: skip
        if is_listener or (here, there) == (end, other):
            found = item
            if here.address == end.address:
                break
    return found


def _table() -> Iterator[tuple[Endpoint, Endpoint, _Socket]]:
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), Path("/proc/net", name).open("rb") as lines:
            next(lines, b"")
            for line in lines:
                words = line.split()
                state, uid, inode = int(words[3], 16), int(words[7]), int(words[9])
                ends = (_listed_end(words[1]), _listed_end(words[2]))
                yield *ends, _Socket(state, uid, inode)


def _listed_end(text: bytes) -> Endpoint:
    """An address is written as words of 32 bits in the machine's own order."""
    address, _, port = text.partition(b":")
    words = (int(address[at : at + 8], 16) for at in range(0, len(address), 8))
    packed = b"".join(struct.pack("=I", word) for word in words)
    return Endpoint.of((ipaddress.ip_address(packed), int(port, 16)))


def _own_uid(end: Endpoint, other: Endpoint | None) -> int | None:
    """This user, when a process of it has the socket; other None: one that listens at end."""
    import psutil

    user = psutil.Process().username()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.username() != user:
                continue
            for each in process.net_connections("tcp"):
                listens = other is None and each.status == psutil.CONN_LISTEN
                if each.laddr.port != end.port or (other is None) != listens:
                    continue
                if other is None or (each.raddr and Endpoint.of(each.raddr) == other):
                    return own_uid()
    return None
