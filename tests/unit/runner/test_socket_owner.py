"""Which user of the machine holds a socket: real connections over loopback."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner import socket_owner
from runner.socket_owner import Endpoint, connected_uid, is_local, serving_uid
from tests.other_user import UID, holding_a_port, needs_two_users

Pair = tuple[socket.socket, socket.socket]
WAYS = ("sock_diag", "proc", "psutil")


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way to find out, with the better ones away."""
    if request.param == "sock_diag":
        assert socket_owner._has_sock_diag() or not Path("/proc/net/tcp").exists()
    else:
        monkeypatch.setattr(socket_owner, "_has_sock_diag", lambda: False)
    if request.param == "psutil":
        monkeypatch.setattr(socket_owner, "_IS_LINUX", False)
    return str(request.param)


@pytest.fixture(params=["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A connection: its client's and its server's socket."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    both = "::" if "ffff" in request.param else request.param
    with socket.create_server((both, 0), family=family, dualstack_ipv6=both == "::") as listening:
        client = socket.socket(family)
        client.connect((request.param, listening.getsockname()[1]))
        server, _ = listening.accept()
        with client, server:
            yield client, server


def ends(pair: Pair) -> tuple[Endpoint, Endpoint]:
    """The client's and the server's, as the server sees them."""
    return Endpoint.of(pair[1].getpeername()), Endpoint.of(pair[1].getsockname())


def test_both_ends_of_a_connection_are_known(way: str, pair: Pair) -> None:
    client, server = ends(pair)
    assert connected_uid(client, server) == os.getuid()
    assert connected_uid(server, client) == os.getuid()
    assert serving_uid(server, client) == os.getuid()


def test_a_socket_that_no_process_has_is_nobodys(way: str, pair: Pair) -> None:
    client, server = ends(pair)
    pair[0].close()
    assert connected_uid(client, server) is None  # the kernel says uid 0 of it
    pair[1].close()
    assert connected_uid(client, server) is None
    assert connected_uid(server, client) is None


def test_a_program_that_listens_at_the_clients_port_is_not_the_client(way: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        held = Endpoint.of(listening.getsockname())
        nowhere = Endpoint.of(("127.0.0.1", 9))
        assert connected_uid(held, nowhere) is None
        assert serving_uid(held, nowhere) == os.getuid()


def test_a_connection_that_waits_to_be_accepted_is_the_listeners(way: str) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        server, here = Endpoint.of(client.getpeername()), Endpoint.of(client.getsockname())
        assert connected_uid(server, here) is None
        assert serving_uid(server, here) == os.getuid()


def test_other_machines_have_no_user_here() -> None:
    here, there = Endpoint.of(("192.0.2.1", 1)), Endpoint.of(("127.0.0.1", 2))
    assert connected_uid(here, there) is None
    assert connected_uid(there, here) is None
    assert serving_uid(here, there) is None
    assert not is_local(here, there)


def test_two_ends_with_one_address_are_of_this_machine() -> None:
    assert is_local(Endpoint.of(("192.0.2.1", 1)), Endpoint.of(("192.0.2.1", 2)))


@pytest.mark.parametrize(
    ("own", "trusted"), [(1000, (1000, 0)), (0, (0,)), (socket_owner._OVERFLOW, (0,))]
)
def test_only_this_user_and_root_are_trusted_and_nobody_is_nobody(
    own: int, trusted: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: own)
    users = (None, 0, 1000, 1001, socket_owner._OVERFLOW)
    assert tuple(uid for uid in users if socket_owner.is_trusted(uid)) == tuple(sorted(trusted))


@needs_two_users
def test_another_users_socket_is_that_users(way: str) -> None:
    with (
        holding_a_port() as (port, _),
        socket.create_connection(("127.0.0.1", port)) as client,
    ):
        server, here = Endpoint.of(client.getpeername()), Endpoint.of(client.getsockname())
        assert serving_uid(server, here) == (None if way == "psutil" else UID)
