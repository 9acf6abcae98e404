"""Takes the daemon's port, and says who has it when it is taken.

The socket is bound before anything else is touched, so that a second daemon changes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from runner.authority import is_loopback
from runner.exclusive_port import own_port
from runner.http_transport import unverified
from runner.process_limits import limits_of, set_limits
from runner.setting_values import Address
from runner.settings import host_source

_ASK_TIMEOUT_S = 2.0
# What the system takes of an answer beyond what the client's own buffer has room for; it takes
# megabytes by itself. A send buffer as small as this one (SO_SNDBUF) holds no two segments of
# loopback, and a client that reads fast got 1.6 MB/s instead of 1,100.
UNSENT_BYTES = 16 * 1024
MAX_OPEN_FILES = 16_384
QUEUE = 2048  # of connections that the daemon has not accepted yet


class ListenError(Exception):
    """The address cannot be listened on; the message says why and what to do."""


class PortTaken(ListenError):
    """Another process listens there already."""


def raise_file_limit() -> int:
    """Let this process, and those that it starts, open MAX_OPEN_FILES where it may. Returns how
    many it may open now."""
    soft, hard = limits_of("NOFILE")
    wanted = MAX_OPEN_FILES if hard is None else min(hard, MAX_OPEN_FILES)
    if soft is None or soft >= wanted:
        return wanted if soft is None else soft
    try:
        set_limits("NOFILE", wanted, hard)
    except (OSError, ValueError):  # macOS has a limit below the hard one
        return soft
    return wanted


def listen(address: Address, guarded: bool) -> tuple[socket.socket, Address]:
    """A listening socket and the address it really has (port 0 becomes a number). guarded:
    something keeps strangers out, so that it may be reachable from other machines. Raises
    ListenError."""
    check_guarded(address.host, guarded, host_source())
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only for sockets that say they are TCP, and answers of
    # several writes took 44 ms instead of 0.2 on a connection that is kept.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        own_port(sock)
        sock.bind((address.host, address.port))
        sock.listen(QUEUE)
    except OSError as error:
        sock.close()
        raise _refusal(address, error) from None
    prepare(sock)
    return sock, replace(address, port=sock.getsockname()[1])


def prepare(sock: socket.socket) -> None:
    """What the daemon wants of a socket that it accepts from."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    sock.setblocking(False)


def check_guarded(host: str, guarded: bool, origin: str) -> None:
    """Raises ListenError for a host that others could reach although nothing keeps strangers out.
    origin: who has given it, for the message."""
    if not guarded and not is_loopback(host):
        raise ListenError(
            f"{host}{origin} can be reached from other machines, and without API keys anyone could "
            "use and change everything. Create a key first: hearth key add NAME. Or set "
            "HEARTH_HOST=127.0.0.1, or HEARTH_INSECURE_PUBLIC=1 if something else protects the port"
        )


def _refusal(address: Address, error: OSError) -> ListenError:
    if error.errno == errno.EADDRINUSE:
        return PortTaken(
            f"{address.host}:{address.port}{host_source()} is in use by {who_listens(address)}. "
            f"Stop it, or set HEARTH_HOST to another address, such as {address.host}:"
            f"{address.port + 1}"
        )
    reason = os.strerror(error.errno) if error.errno else str(error)
    where = f"{address.host}:{address.port}{host_source()}"
    return ListenError(f"cannot listen on {where}: {reason}. Set HEARTH_HOST to another address")


def who_listens(address: Address) -> str:
    """The program that answers at address, as precisely as can be found out."""
    answer = None
    with contextlib.suppress(TimeoutError):  # a server of TLS would not be silent
        answer = _ask_version(address, http.client.HTTPConnection) or _ask_version(
            address, partial(http.client.HTTPSConnection, context=unverified())
        )
    if answer is not None and answer.get("name") == "hearth":
        return (
            f"another hearth daemon (version {answer.get('hearth')}, process"
            f" {answer.get('pid')}, models in {answer.get('store')}; hearth shutdown ends it)"
        )
    if answer is not None and "version" in answer:
        return f"Ollama {str(answer['version'])[:40]}"
    return _process_at(address.port) or "another program"


def _ask_version(
    address: Address, connect: Callable[..., http.client.HTTPConnection]
) -> dict[str, Any] | None:
    """What it says; None: nothing that can be read. Raises TimeoutError."""
    connection = connect(address.reachable.host, address.port, timeout=_ASK_TIMEOUT_S)
    try:
        connection.request("GET", "/api/version")
        value = json.loads(connection.getresponse().read(65_536))
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return value if isinstance(value, dict) else None


def _process_at(port: int) -> str | None:
    import psutil

    try:
        for item in psutil.net_connections("tcp"):
            here = item.laddr and item.laddr.port == port
            if item.status == psutil.CONN_LISTEN and here and item.pid:
                return f"{psutil.Process(item.pid).name()} (process {item.pid})"
    except psutil.Error:
        return None
    return None
