"""Gives a verb its client: reads the settings, finds the daemon, starts it when none answers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from runner.settings import Address, Settings, load

if TYPE_CHECKING:
    from runner.client import Client

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_WILDCARD = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def new_client(settings: Settings) -> Client:
    """A client for the daemon of settings; connects on first use."""
    if "httpx" not in sys.modules:
        # httpx imports click, rich and pygments for a command line of its own: 70 ms of the
        # 140 ms that it costs here. It does without when that module cannot be imported.
        sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    from runner.client import Client

    return Client(reachable(settings.host).url)


def connect(settings: Settings | None = None, start: bool = True) -> Client:
    """A client of a daemon that answers and is hearth.

    Starts one when start is set, the address is this machine and HEARTH_NO_AUTOSTART is not
    set. Raises DaemonUnreachable, NotHearth or Failure (the daemon ended at once).
    """
    known = settings if settings is not None else load()
    client = new_client(known)
    from runner.client import DaemonUnreachable

    try:
        client.version()
    except DaemonUnreachable:
        if not start or known.no_autostart or not is_local(known.host):
            raise
        from cli.daemon import start_daemon

        start_daemon(known, client)
    return client


def reachable(address: Address) -> Address:
    """The address to connect to: a daemon that listens everywhere is reached on this machine."""
    return Address(_WILDCARD.get(address.host, address.host), address.port, address.scheme)


def is_local(address: Address) -> bool:
    """Whether a daemon started here would listen at this address."""
    return address.scheme == "http" and reachable(address).host in _LOOPBACK
