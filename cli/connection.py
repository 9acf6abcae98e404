"""Gives a verb its client: reads the settings, finds the daemon, starts it when none answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.settings import Address, Settings, host_source, load, parse_address

if TYPE_CHECKING:
    from runner.client import Client

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_WILDCARD = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def new_client(settings: Settings) -> Client:
    """A client for the daemon of settings; connects with each request."""
    from runner.client import Client

    url = reachable(settings.address).url
    key = settings.api_key or _owner_token(settings, url)
    return Client(url, key=key, certificate=settings.tls_cert, source=host_source())


def _owner_token(settings: Settings, url: str) -> str | None:
    """What opens everything for the user who has started the daemon at url here; None when that
    daemon is another one."""
    try:
        facts = json.loads((settings.state_dir / "daemon.json").read_bytes())
        known = reachable(parse_address(facts["url"])).url
        return str(facts["token"]) if known == url else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def connect(settings: Settings | None = None, start: bool = True) -> Client:
    """A client of a daemon that answers and is hearth.

    Starts one when start is set, the address is this machine and HEARTH_NO_AUTOSTART is not
    set. Raises DaemonUnreachable, NotHearth or CliError (the daemon ended at once).
    """
    known = settings if settings is not None else load()
    client = new_client(known)
    from runner.client import DaemonUnreachable

    try:
        client.version()
    except DaemonUnreachable:
        if not start or known.no_autostart or not is_local(_spoken_plainly(known)):
            raise
        from cli.daemon import start_daemon

        start_daemon(known, client)
    return client


def _spoken_plainly(settings: Settings) -> Address:
    """host, as if its daemon spoke no https: with a certificate one started here does."""
    return settings.host if settings.tls_cert is None else replace(settings.host, scheme="http")


def reachable(address: Address) -> Address:
    """The address to connect to: a daemon that listens everywhere is reached on this machine."""
    return Address(_WILDCARD.get(address.host, address.host), address.port, address.scheme)


def is_local(address: Address) -> bool:
    """Whether a daemon started here would listen at this address."""
    return address.scheme == "http" and reachable(address).host in _LOOPBACK
