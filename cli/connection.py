"""Gives a verb its client: reads the settings, finds the daemon, starts it when none answers."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from cli.addresses import LOOPBACK, daemon_facts, is_local, spoken_plainly
from runner.setting_values import Address
from runner.settings import Settings, given, host_source, load, variable

if TYPE_CHECKING:
    from runner.client import Client


def new_client(settings: Settings) -> Client:
    """A client for the daemon of settings; connects with each request."""
    from cli.server_user import check_server
    from runner.client import Client
    from runner.http_transport import HttpTransport

    url = settings.address.reachable.url
    key = settings.api_key or daemon_facts(settings, url).get("token")
    transport = HttpTransport(url, settings.tls_cert, check_server(settings))
    return Client(url, transport, key=key, source=host_source())


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
    elsewhere = {"listen": "", "tls_cert": "", "tls_key": "", "host": private.host.url}
    texts = {name: ways[0].text for name, ways in given().items()} | elsewhere
    alone = {variable(name): text for name, text in texts.items()} | {"HEARTH_CONFIG": os.devnull}
    start_daemon(private, new_client(private), alone)
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
        return address.host not in LOOPBACK
    return False
