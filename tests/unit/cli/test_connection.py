"""Finding the daemon."""

from __future__ import annotations

import pytest

from cli import connection
from cli.addresses import is_local
from cli.connection import connect
from runner.client import Client, DaemonUnreachable
from runner.setting_values import parse_address
from runner.settings import Settings, load
from tests.unit.cli.conftest import FakeDaemon


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:4327"),
        ("[::]:99", "http://[::1]:99"),
        ("box:1", "http://box:1"),
    ],
)
def test_a_daemon_that_listens_everywhere_is_reached_here(address: str, url: str) -> None:
    assert parse_address(address).reachable.url == url


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("0.0.0.0", True),
        ("[::1]:5", True),
        ("box", False),
        ("https://127.0.0.1", False),
    ],
)
def test_only_an_address_of_this_machine_is_local(address: str, local: bool) -> None:
    assert is_local(parse_address(address)) is local


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """No daemon answers; the list holds the settings of those that were started."""
    started: list[Settings] = []

    class Nobody(Client):
        def version(self) -> str:
            raise DaemonUnreachable("nobody")

    monkeypatch.setattr(connection, "new_client", lambda settings: Nobody("http://127.0.0.1:1"))
    monkeypatch.setattr("cli.daemon.start_daemon", lambda known, client: started.append(known))
    return started


def test_a_daemon_is_started_when_none_answers(unreachable: list[Settings]) -> None:
    settings = load({})
    connect(settings)
    assert unreachable == [settings]


@pytest.mark.parametrize("variable", ["HEARTH_NO_AUTOSTART=1", "HEARTH_HOST=192.0.2.1"])
def test_none_is_started_when_unwanted_or_elsewhere(
    unreachable: list[Settings], variable: str
) -> None:
    with pytest.raises(DaemonUnreachable):
        connect(load(dict([variable.split("=")])))
    assert unreachable == []


def test_a_running_daemon_is_used(daemon: FakeDaemon) -> None:
    connect(load({}))
    assert daemon.requests == [("GET", "/api/version", b"")]
