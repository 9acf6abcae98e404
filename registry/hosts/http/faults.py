"""Explains why a connection failed: name not found, no route, refused, no answer.

Owns the words. Knows no HTTP client: two of them are in use here, and both keep the fault of the
system as the cause of theirs.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Iterator

from registry.errors import RemoteRefused, shown
from registry.hosts.host import NobodyThere, RetryLater

_AWAY = "the network seems to be down"
_NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN)
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")


def connection_fault(error: BaseException, address: str) -> RetryLater | RemoteRefused:
    """What to raise for an error of an HTTP client. address: the host with its port."""
    faults = list(_causes(error))
    system = next((fault for fault in faults if isinstance(fault, OSError)), None)
    system = next((f for f in faults if isinstance(f, OSError) and f.errno is not None), system)
    if isinstance(system, ssl.SSLCertVerificationError):
        return RemoteRefused(
            f"the certificate of {address} cannot be verified: {system.verify_message}. If you "
            "trust the host anyway, use --insecure"
        )
    if isinstance(system, ssl.SSLError) and system.reason in _NO_TLS:
        return RemoteRefused(
            f"{address} does not speak TLS; write http:// before it, with --insecure for another "
            "machine"
        )
    if "Connect" not in type(error).__name__:
        reason = str(error) or type(error).__name__
        if "Timeout" in type(error).__name__:
            return RetryLater(f"{address} stopped responding")
        return RetryLater(f"the connection to {address} broke: {shown(reason, 200)[1:-1]}")
    is_away = isinstance(system, socket.gaierror) or (
        system is not None and system.errno in (errno.ECONNREFUSED, *_NO_ROUTE)
    )
    kind = NobodyThere if is_away else RetryLater
    return kind(f"cannot reach {address}: {_no_connection(system)}")


def _no_connection(system: OSError | None) -> str:
    if isinstance(system, socket.gaierror):
        return f"its name cannot be resolved; it is misspelled, or {_AWAY}"
    if isinstance(system, ssl.SSLError):
        return f"TLS failed ({system.reason})"
    if system is None or system.errno in (None, errno.ETIMEDOUT):
        return f"no answer; {_AWAY}"
    if system.errno == errno.ECONNREFUSED:
        return "the connection was refused; nothing listens there, or a firewall blocks it"
    if system.errno in _NO_ROUTE:
        return f"there is no route to it; {_AWAY}"
    return os.strerror(system.errno or 0)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what caused it, as deep as it goes; of a group the first."""
    while error is not None:
        yield error
        inner = getattr(error, "exceptions", None)
        error = inner[0] if inner else error.__cause__ or error.__context__
