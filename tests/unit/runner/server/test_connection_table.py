from __future__ import annotations

import pytest

from runner.server.connection_table import MAX_CONNECTIONS, ConnectionTable, connection_limit


class Client:
    def __init__(self, address: str = "127.0.0.1") -> None:
        self.address = address
        self.dropped = False

    def drop(self) -> None:
        self.dropped = True

    def check(self, now_s: float) -> None:
        """It has time."""


async def test_an_address_of_another_machine_has_a_part_of_the_connections() -> None:
    table = ConnectionTable(8)
    mine = [Client("192.0.2.1") for _ in range(3)]
    assert all(table.admit(client) for client in mine)
    assert [client.dropped for client in mine] == [True, False, False]
    for client in mine[1:]:
        table.begin(client, b"/", [])
    assert not table.admit(Client("192.0.2.1"))
    assert table.admit(Client("192.0.2.2"))


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::/64", ""])
async def test_this_machine_has_them_all(address: str) -> None:
    table = ConnectionTable(8)
    clients = [Client(address) for _ in range(8)]
    assert all(table.admit(client) for client in clients)
    assert not any(client.dropped for client in clients)


async def test_requests_in_progress_are_never_dropped() -> None:
    table = ConnectionTable(8, lambda path, _: path == b"/health")
    busy = [Client() for _ in range(8)]
    for client in busy:
        assert table.admit(client)
        assert table.begin(client, b"/health", [])
    assert not table.admit(Client())
    assert table.relieve() == 0
    table.leave(busy[0])
    table.leave(busy[0])
    assert table.admit(Client())
    assert not any(client.dropped for client in busy)


async def test_requests_that_wait_for_their_turn_are_in_progress() -> None:
    table, gone_on = ConnectionTable(8), []
    clients = [Client() for _ in range(8)]
    for client in clients:
        table.admit(client)
    waits = [table.await_turn(each, lambda each=each: gone_on.append(each)) for each in clients]
    assert waits == [True] * 7 + [False]
    assert not table.admit(Client()) or clients[7].dropped
    assert not any(client.dropped for client in clients[:7])
    assert all(table.begin(client, b"/", []) for client in clients[:7])
    assert not table.turns.take()


async def test_a_system_without_descriptors_costs_some_idle_connections() -> None:
    table = ConnectionTable(100)
    idle = [Client() for _ in range(20)]
    for client in idle:
        table.admit(client)
    assert table.relieve() == 3
    assert [client.dropped for client in idle] == [True] * 3 + [False] * 17


@pytest.mark.parametrize(("files", "most"), [(16, 8), (256, 64), (1024, 704), (16_384, 4096)])
def test_connections_leave_descriptors_for_the_rest_of_the_daemon(files: int, most: int) -> None:
    assert connection_limit(files) == most
    assert connection_limit(files) <= MAX_CONNECTIONS
