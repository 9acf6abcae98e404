"""Gives a verb its client: reads the settings, finds the daemon, starts it when none answers."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    return daemon_facts(settings, url).get("token")


def daemon_facts(settings: Settings, url: str) -> dict[str, str]:
    """What the daemon at url has written down for this user: its token, and models, the folder of
    its models; nothing where it is another user's or another machine's."""
    try:
        facts = json.loads((settings.state_dir / "daemon.json").read_bytes())
        is_own = reachable(parse_address(facts["url"])).url == url
        known = {"token", "models"} & facts.keys() if is_own else ()
        return {key: str(facts[key]) for key in known}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


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
        if not start or known.no_autostart or not is_local(spoken_plainly(known)):
            raise
        from cli.daemon import start_daemon

        start_daemon(known, client)
        return new_client(known)  # now with the token of that daemon
    return client


@contextmanager
def connected_for_keys(settings: Settings) -> Iterator[Client]:
    """A client for changing keys. A daemon that other machines could reach does not start without
    a key: where none answers at such an address, one that only this machine reaches runs until
    the end. Raises what connect raises."""
    from cli.daemon import answers, end_daemon, start_daemon

    if not _is_open(settings.host) or answers(new_client(settings)):
        yield connect(settings)
        return
    private = replace(settings, host=Address("127.0.0.1", settings.host.port), tls_cert=None)
    plain = {"HEARTH_HOST": private.host.url, "HEARTH_TLS_CERT": "", "HEARTH_TLS_KEY": ""}
    start_daemon(private, new_client(private), plain)
    client = new_client(private)
    try:
        yield client
    finally:
        end_daemon(client, client.about(), quiet=True)


def _is_open(address: Address) -> bool:
    """Whether other machines could reach a daemon that was started here at this address."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as probe, suppress(OSError):
        probe.bind((address.host, 0))
        return address.host not in _LOOPBACK
    return False


def spoken_plainly(settings: Settings) -> Address:
    """host, as if its daemon spoke no https: with a certificate one started here does."""
    return settings.host if settings.tls_cert is None else replace(settings.host, scheme="http")


def reachable(address: Address) -> Address:
    """The address to connect to: a daemon that listens everywhere is reached on this machine."""
    return Address(_WILDCARD.get(address.host, address.host), address.port, address.scheme)


def is_local(address: Address) -> bool:
    """Whether a daemon started here would listen at this address."""
    return address.scheme == "http" and reachable(address).host in _LOOPBACK
